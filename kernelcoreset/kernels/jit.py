"""Compilation with numba: functions whose machine code is kept, and calls of compiled functions by address."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numba
from numba.core import cgutils, codegen, compiler, errors, event, types
from numba.extending import intrinsic

from kernelcoreset.kernels.machine_code import KeptCode

_cgutils: Any = cgutils
_errors: Any = errors
_event: Any = event
_Library: Any = codegen.JITCodeLibrary
_Compiler: Any = compiler.Compiler
_types: Any = types
_njit: Any = numba.njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `njit` that keeps machine code; see `machine_code`."""

    def decorate(function: Callable[..., Any]) -> Any:
        # References to arrays are counted, also if a part that does not count them is the first to call this.
        dispatcher = _njit(no_cfunc_wrapper=True, _nrt=True, **options)(function)
        dispatcher._cache = KeptCode(function)
        return dispatcher

    return decorate


class _PartLibrary(_Library):  # type: ignore[misc]
    """A part before its optimisation: its callers are optimised with it, and it needs no machine code of its own."""

    def finalize(self) -> None:
        """Link what the part itself calls."""
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # numba 0.61 has none
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of no function, as for one that is not there."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        """Itself, because parts are not in the engine that other libraries are added to."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: only calls from Python need an environment."""


class _PartCompiler(_Compiler):  # type: ignore[misc]
    """As numba's own, with a library that is not optimised."""

    def define_pipelines(self) -> Any:
        """Return the steps from Python to a library."""
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


def part(*, kept: bool = False, makes_arrays: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for functions that only compiled functions call: they are compiled, and kept, with these.

    Without what a call from Python needs, which checks and converts every argument, this takes half the time. With
    `kept` the function is kept by itself, to be called by its address. References to arrays are counted only in
    functions that make some or assign one to another, `makes_arrays`: counting takes as long as some hundred kernel
    values for every tile.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        how: dict[str, Any] = {} if kept else {"pipeline_class": _PartCompiler}
        how["_nrt"] = makes_arrays
        dispatcher = _njit(no_cfunc_wrapper=True, no_cpython_wrapper=True, **how, **options)(function)

        def refuse(*arguments: Any, **named: Any) -> Any:
            raise TypeError(f"`{function.__name__}` is part of compiled functions and cannot be called from Python.")

        if kept:
            dispatcher._cache = KeptCode(function)
        # Python never gets to see the compiled function, so that it cannot call it without the checks.
        dispatcher.add_overload = lambda result: dispatcher.overloads.update({tuple(result.signature.args): result})
        dispatcher._compile_for_args = refuse
        return dispatcher

    return decorate


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """Return the address of a compiled function for these types of arguments, for `calling`."""
    function.compile(arguments)
    result = function.overloads[arguments]
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def calling(*arguments: Any) -> Any:
    """Return an intrinsic: call(address, (arguments...)) in compiled code calls a function without a result.

    A plain call would make the function a part of its caller, to be compiled with it, again for every caller.
    """

    def call(typing: Any, address: Any, given: Any) -> Any:
        def generate(context: Any, builder: Any, own: Any, values: Any) -> Any:
            kind = context.call_conv.get_function_type(types.none, arguments)
            pointer = builder.inttoptr(values[0], kind.as_pointer())
            unpacked = _cgutils.unpack_tuple(builder, values[1])
            status, _ = context.call_conv.call_function(builder, pointer, types.none, arguments, unpacked)
            with _cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return context.get_dummy_value()

        return _types.none(types.int64, _types.Tuple(arguments)), generate

    return intrinsic(call)


class _Plain:
    """How numba writes its messages if it cannot colour them."""

    code = errmsg = filename = indicate = highlight = reset = staticmethod(str)


class _InHaste(event.Listener):
    """Lets numba compile without what takes a sixth of that: collecting garbage, and colours.

    It writes thousands of messages to find the types of a function, nearly none of which anybody sees.
    """

    def __init__(self) -> None:
        self._depth, self._collects = 0, False
        self._colours: Any = None

    def on_start(self, event: Any) -> None:
        """Stop both when the outermost compilation starts."""
        if self._depth == 0:
            self._collects, self._colours = gc.isenabled(), _errors._termcolor_inst
            _errors._termcolor_inst = _Plain
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Have both again after the outermost one, as before."""
        self._depth -= 1
        if self._depth == 0:
            _errors._termcolor_inst = self._colours
            if self._collects:
                gc.enable()


_event.register("numba:compile", _InHaste())
