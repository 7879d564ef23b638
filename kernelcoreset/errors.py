"""The errors this package raises on purpose, by what to change. A message gives name, rule, value and remedy."""


class KernelCoresetError(ValueError):
    """Base class of every error this package raises on purpose."""


class SettingError(KernelCoresetError):
    """A parameter is unknown or out of its range. Change the call or the settings."""


class DataError(KernelCoresetError):
    """Points, weights or ids cannot be used. Change the data."""


class KernelError(KernelCoresetError):
    """The kernel cannot be evaluated on these points, or is not a kernel. Change the kernel or scale the data."""


class FormatError(KernelCoresetError):
    """A file or plain-data form is damaged, of another kind, or written by a newer version of this package."""


class ConflictError(KernelCoresetError):
    """Another process changed the same thing in the meantime. Read the current state and try again."""
