"""What can go wrong, by whose hand it can be mended. Every message says name, rule, value and remedy."""


class KernelCoresetError(ValueError):
    """Base of every error this package raises on purpose."""


class SettingError(KernelCoresetError):
    """A parameter is out of its range or unknown: change the call."""


class DataError(KernelCoresetError):
    """Points, weights or ids cannot be used: change the data."""


class KernelError(KernelCoresetError):
    """A kernel cannot be evaluated on these points, or is not a kernel: change the kernel or scale the data."""


class FormatError(KernelCoresetError):
    """A file or plain-data form is damaged, foreign, or from a newer version."""


class ConflictError(KernelCoresetError):
    """Somebody else changed the same thing meanwhile: look at what is there now, and try again."""
