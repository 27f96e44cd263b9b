"""`compile`: a training step recorded once and replayed as one submit."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, overload

from .autograd import ObservedGrad, grad_enabled, observe_grads
from .debugging import is_debugging
from .errors import DeviceLostError, OptirsError, UnsupportedError, quoted
from .hostdata import HostData, host_data
from .launch import contiguous
from .ops.calls import autocast_to
from .recovery import recover, recover_async, snapshot, snapshot_async
from .runtime.buffer import View
from .runtime.device import Device
from .runtime.flags import UsedFlags
from .runtime.launches import Copy
from .runtime.program import NotReadyError, Program, StaleProgramError, recorded_here
from .runtime.registry import check_name, device as device_of
from .tensors import Parameter, Tensor, empty, tensor

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

__all__ = ["Compiled", "CompiledMethod", "compile", "prepare"]

_RECORDINGS_KEPT = 16


class _Guard:
    """The snapshots of a step that recovers from the loss of its device."""

    def __init__(self, every: int, to: str | None) -> None:
        self.every = every
        self.to = to  # where to continue; None for the same device
        self._calls = 0
        self._device: Device | None = None  # that of the last call
        self._has_snapshot = False
        self._task: Future[None] | None = None

    @property
    def _is_due(self) -> bool:
        return self._calls % self.every == 0

    def check(self) -> None:
        """Raise DeviceLostError if the device of the last call was lost, before another one is opened."""
        if self._device is not None and self._device.lost:
            raise DeviceLostError(f"device '{self._device.name}' was lost")

    def recovered(self) -> None:
        """Allow the next call to be on another device."""
        self._device = None

    async def settle(self) -> None:
        """Wait for the pending snapshot when the next one is due: a loop of calls leaves it no time otherwise."""
        if self._is_due and self._task is not None:
            import asyncio

            await asyncio.wait([self._task])

    def before_call(self, device: Device) -> None:
        """Take a snapshot when one is due."""
        if self._is_due:
            self._take(device)
        self._calls += 1
        self._device = device

    def _take(self, device: Device) -> None:
        """Take a snapshot; in an event loop only the copy is made now, and read while training continues."""
        is_under_way = self._task is not None and not self._task.done()
        if self._task is not None and not is_under_way and not self._task.cancelled():
            self._task.result()  # raises its error
        event_loop = _running_loop()
        if event_loop is None or (device.can_wait and (is_under_way or not self._has_snapshot)):
            if self._task is not None:
                self._task.cancel()  # it has had no time to finish, and would replace the newer one
            snapshot(device)
            self._has_snapshot = True
        elif not is_under_way:
            self._task = event_loop.create_task(_unless_lost(snapshot_async(device)))


def _running_loop() -> AbstractEventLoop | None:
    import asyncio  # which takes longer to import than a first tensor takes

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _unless_lost(reading: Awaitable[None]) -> None:
    with suppress(DeviceLostError):  # the previous snapshot is kept
        await reading


class _Recorded(NamedTuple):
    """A recording: the conditions of its replay, and the tensors that its replay reads and writes."""

    key: Hashable
    program: Program
    is_bound: bool  # to its device, as parameters are there
    inputs: list[Tensor]
    output: Any  # whose tensors, but for parameters, share no views
    grads: list[tuple[ObservedGrad, Tensor | None]]  # the gradients before and after the step
    flags: UsedFlags

    def fits(self, key: Hashable, device: Device | None, may_move: bool) -> bool:
        """Return whether a call with this key on this device, with the current flags and gradients, may replay it.

        Without a device: on the one that it is bound to.
        """
        recorded_device = self.program.device
        return (
            self.key == key
            and (recorded_device is device or (may_move and self.is_bound))
            and not recorded_device.lost
            and self.flags.are_unchanged()
            and all(
                _have_same_view(observation.leaf._grad, observation.before)
                for observation, _ in self.grads
                if observation.is_read
            )
        )


class _ElsewhereError(Exception):
    """A tensor that a step uses is on another device. Users see `reason` instead."""

    def __init__(self, device: Device, reason: OptirsError | None = None) -> None:
        super().__init__(f"run it on {device.name}")
        self.device = device
        self.reason = reason or UnsupportedError(f"the step uses tensors on '{device.name}' and elsewhere")


def _have_same_view(first: Tensor | None, second: Tensor | None) -> bool:
    return first is second or (first is not None and second is not None and first.view == second.view)


class Compiled:
    """A step that is recorded at its first call and replayed afterwards. Made by `compile`; call it like the step."""

    place: ClassVar[Callable[[Compiled, list[Any]], Device | None] | None] = None
    """Chooses the device of a call with prepared arguments, if none was requested: set by `optirs_web.placement`."""

    def __init__(
        self,
        step: Callable[..., Any],
        device: str | Device | None = None,
        recover: bool | str = False,
        snapshot_every: int = 100,
        fuse: bool = True,
    ) -> None:
        if not isinstance(recover, (bool, str)):
            raise TypeError(f"recover must be True, False or the name of a device, not {recover!r}")
        if isinstance(recover, str):
            check_name(recover)
        if snapshot_every < 1:
            raise ValueError(f"snapshot_every must be 1 or more, not {snapshot_every}")
        functools.update_wrapper(self, step, updated=())  # the attributes of a callable object are not copied
        self._step = step
        self._requested_device = device
        self._fuses = fuse
        self._guard = _Guard(snapshot_every, recover if isinstance(recover, str) else None) if recover else None
        self._recorded: list[_Recorded] = []  # the most recently used one is the last

    def __get__(self, instance: object, owner: type | None = None) -> Compiled | CompiledMethod:
        """Return the bound method for an instance."""
        return self if instance is None else CompiledMethod(self, instance)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Upload the arguments, replay, and return the step's results in memory of their own."""
        if named:
            arguments = self._by_position(arguments, named)
        try:
            return self._run(arguments)
        except DeviceLostError:
            if self._guard is None:
                raise
        recover(self._guard.to)
        self._recovered(self._guard)
        return self._run(arguments)

    async def call_async(self, *arguments: Any, **named: Any) -> Any:
        """The awaitable twin of a call, for a browser that cannot wait synchronously.

        It only waits for a recovery, and for a snapshot that has not arrived when the next one is due.
        """
        if named:
            arguments = self._by_position(arguments, named)
        if self._guard is not None:
            await self._guard.settle()
        try:
            return self._run(arguments)
        except DeviceLostError:
            if self._guard is None:
                raise
        await recover_async(self._guard.to)
        self._recovered(self._guard)
        return self._run(arguments)

    def __copy__(self) -> Compiled:
        """Return a copy of the step, not recorded yet."""
        return self._of(Compiled.__new__(Compiled), self._step)

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        """Return a copy of the step, not recorded yet; its callable is deep-copied, which keeps a function as it is."""
        import copy  # which few steps need

        copied = memo[id(self)] = Compiled.__new__(Compiled)
        return self._of(copied, copy.deepcopy(self._step, memo))

    def _of(self, copied: Compiled, step: Callable[..., Any]) -> Compiled:
        guard = self._guard
        recover = (guard.to or True) if guard else False
        Compiled.__init__(copied, step, self._requested_device, recover, guard.every if guard else 1, self._fuses)
        return copied

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            f"the compiled step '{getattr(self, '__qualname__', type(self._step).__name__)}' cannot be pickled: pickle "
            "the state_dict() of what it trains, and compile the step where that is loaded"
        )

    def _by_position(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        from inspect import signature  # which takes longer than a step called with positional arguments

        bound = signature(self._step).bind(*arguments, **named)
        bound.apply_defaults()
        if bound.kwargs:
            names = ", ".join(bound.kwargs)
            raise UnsupportedError(f"a compiled step has no keyword-only arguments: take {names} by position")
        return bound.args

    def _recovered(self, guard: _Guard) -> None:
        guard.recovered()
        if guard.to:
            self._requested_device = guard.to

    @property
    def program(self) -> Program | None:
        """The program that was used last, or None if nothing was recorded."""
        return self._recorded[-1].program if self._recorded else None

    def forget(self, device: Device) -> None:
        """Drop the recordings on a device, which frees their memory unless they run now."""
        self._recorded = [recorded for recorded in self._recorded if recorded.program.device is not device]

    def _run(self, arguments: tuple[Any, ...]) -> Any:
        if recorded_here() is not None:
            raise UnsupportedError("a compiled step cannot be called inside another one; call the function itself")
        if self._guard is not None:
            self._guard.check()
        prepared = [argument if isinstance(argument, Tensor) else prepare(argument) for argument in arguments]
        key = self._key(prepared)
        device, may_move = self._device(key, prepared)
        try:
            return self._run_on(key, device, prepared, may_move)
        except _ElsewhereError as error:
            device, reason = error.device, error.reason
        try:
            return self._run_on(key, device, prepared, may_move, is_bound=True)
        except _ElsewhereError:  # it uses tensors on several devices
            raise reason from None

    def _run_on(
        self, key: Hashable, device: Device, prepared: list[Any], may_move: bool, is_bound: bool = False
    ) -> Any:
        """Run the step on a device, and record it there first if it is not recorded yet.

        Args:
            key: the modes, shapes and constants that a recording depends on besides the device.
            device: the device.
            prepared: the arguments, from `prepare`.
            may_move: the step may run on the device of its parameters instead.
            is_bound: its parameters are on this device.

        Raises:
            _ElsewhereError: its parameters are on another device.
        """
        with device.turn():
            recorded = self._recorded_on(key, device, prepared, may_move, is_bound)
            if self._guard is not None:
                self._guard.before_call(device)
            if is_debugging():
                inputs = [
                    tensor(argument, device) if isinstance(argument, (Tensor, HostData)) else None
                    for argument in prepared
                ]
                return self._outputs(inputs, prepared)
            contents = _contents(device, prepared)
            for _ in range(2):
                try:
                    results = _replay(device, recorded, contents)
                except StaleProgramError:
                    self._recorded.clear()
                    recorded = self._recorded_on(key, device, prepared, may_move, recorded.is_bound)
                    continue
                if not self._recorded or self._recorded[-1] is not recorded:  # it was dropped to free memory
                    self._recorded.append(recorded)
                return results
        raise UnsupportedError("the step moves the buffers that it has bound itself; build optimizers outside")

    @staticmethod
    def _key(prepared: list[Any]) -> Hashable:
        """Return the modes, and the shapes, types and constants of the arguments that a recording is for."""
        return (autocast_to(), grad_enabled(), *map(_signature, prepared))

    def _device(self, key: Hashable, prepared: list[Any]) -> tuple[Device, bool]:
        """Return the device of a call, and whether it may run on the device of its parameters instead."""
        requested = self._requested_device
        if requested is not None:
            is_lost = self._guard is not None and isinstance(requested, Device) and requested.lost
            return device_of(requested.name if is_lost and isinstance(requested, Device) else requested), False
        placed = None if Compiled.place is None else Compiled.place(self, prepared)
        if placed is not None:
            return placed, False
        for argument in prepared:
            if isinstance(argument, Tensor):
                return argument.device, True
        last = self._recorded[-1] if self._recorded else None
        if last is not None and last.fits(key, None, True):
            return last.program.device, True
        return device_of(None), True

    def recorded_on(self, device: Device, prepared: list[Any]) -> _Recorded:
        """Return the recording for a device and such arguments, made if there is none."""
        return self._recorded_on(self._key(prepared), device, prepared)

    def _recorded_on(
        self, key: Hashable, device: Device, prepared: list[Any], may_move: bool = False, is_bound: bool = False
    ) -> _Recorded:
        """Return the recording for a device and arguments of this key, made if there is none; see `_run_on`."""
        recorded = self._find(key, device, may_move)
        if recorded is None:
            return _when_ready(lambda: self._record(key, device, prepared, may_move, is_bound))
        if recorded.program.device is not device:
            raise _ElsewhereError(recorded.program.device)
        if is_bound and not recorded.is_bound:
            recorded = self._recorded[-1] = recorded._replace(is_bound=True)
        return recorded

    def _find(self, key: Hashable, device: Device, may_move: bool) -> _Recorded | None:
        recorded = self._recorded
        if recorded and recorded[-1].fits(key, device, may_move):
            return recorded[-1]
        kept = [recording for recording in recorded if not recording.program.device.lost]
        match = next((recording for recording in kept if recording.fits(key, device, may_move)), None)
        self._recorded = (
            kept if match is None else [*(recording for recording in kept if recording is not match), match]
        )
        return match

    def _outputs(self, inputs: list[Tensor | None], prepared: list[Any]) -> Any:
        """Call the step; return its output with contiguous tensors without history, which would keep activations."""
        arguments = zip(inputs, prepared, strict=True)
        output = self._step(*(argument if input_ is None else input_ for input_, argument in arguments))
        _check_output(output)
        return _map_tensors(
            output, lambda result: result if isinstance(result, Parameter) else contiguous(result.detach())
        )

    def what_it_binds(self, device: Device, prepared: list[Any]) -> Program:
        """Return a program that is never run, to see the buffers of a step that exceeds the device's limits."""
        return _when_ready(lambda: self._record((), device, prepared, runs=False)).program

    def _record(
        self, key: Hashable, device: Device, prepared: list[Any], may_move: bool = False, is_bound: bool = False,
        runs: bool = True,
    ) -> _Recorded:  # fmt: skip
        inputs = [_input(device, argument) for argument in prepared]
        observed: dict[int, ObservedGrad] = {}
        flags = UsedFlags()
        with observe_grads(observed), flags.noted():
            try:
                with device.record(fuses=self._fuses, runs=runs) as program:
                    try:
                        output = self._outputs(inputs, prepared)
                    except OptirsError as error:
                        if may_move and program.elsewhere is not None:
                            raise _ElsewhereError(program.elsewhere, error) from error
                        raise
                grads = [(observation, observation.leaf._grad) for observation in observed.values()]
            finally:
                for observation in observed.values():  # nothing has run yet
                    observation.leaf._grad = observation.before
        tensors = [input_ for input_ in inputs if input_ is not None]
        flags.finish(but=tensors)
        output = _map_tensors(
            output,
            lambda result: result if isinstance(result, Parameter) else Tensor(result.view, result.shape, result.dtype),
        )
        recorded = _Recorded(key, program, is_bound, tensors, output, grads, flags)
        if not runs:
            return recorded
        device.note_recording(self)
        self._recorded.append(recorded)
        if len(self._recorded) > _RECORDINGS_KEPT:
            del self._recorded[0]
            warnings.warn(
                f"a compiled step was recorded for more than {_RECORDINGS_KEPT} combinations of shapes and constants, "
                "and the oldest recording was dropped; pass changing numbers as tensors",
                stacklevel=3,
            )
        return recorded


def _when_ready(record: Callable[[], _Recorded]) -> _Recorded:
    while True:
        try:
            return record()
        except NotReadyError as error:
            error.prepare()


class CompiledMethod:
    """A compiled step as a method: it is called with the object as first argument, a constant of the recording."""

    def __init__(self, step: Compiled, instance: object) -> None:
        self.__func__ = step
        self.__self__ = instance

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledMethod:
        """Return the method of a copy of the object."""
        import copy

        return CompiledMethod(self.__func__, copy.deepcopy(self.__self__, memo))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the step with the object and the arguments."""
        return self.__func__(self.__self__, *arguments, **named)

    def call_async(self, *arguments: Any, **named: Any) -> Awaitable[Any]:
        """The awaitable twin of a call."""
        return self.__func__.call_async(self.__self__, *arguments, **named)


def _contents(device: Device, prepared: list[Any]) -> list[View | memoryview]:
    """Return the values of the arguments; those on another device are read, before any is written."""
    contents: list[View | memoryview] = []
    for argument in prepared:
        if isinstance(argument, HostData):
            contents.append(argument.content)
        elif isinstance(argument, Tensor):
            view = argument.view
            contents.append(view if view.buffer.device is device else view.buffer.device.read(view))
    return contents


def _replay(device: Device, recorded: _Recorded, contents: list[View | memoryview]) -> Any:
    arguments: list[Copy] = []
    for input_, content in zip(recorded.inputs, contents, strict=True):
        if isinstance(content, View):
            arguments.append(Copy(content, input_.strided.view))
        else:
            device.write(input_.strided.view, content)
    results: list[Copy] = []

    def allocated(output: Tensor) -> Tensor:
        if isinstance(output, Parameter):
            return output
        copy = empty(output.shape, output.dtype, device)
        results.append(Copy(output.strided.view, copy.strided.view))
        return copy

    returned = _map_tensors(recorded.output, allocated)  # before the step runs: there may be no memory
    device.replay(recorded.program, arguments, results)
    device.flush()
    for observation, after in recorded.grads:
        observation.leaf._grad = after
    return returned


@overload
def compile(
    step: Callable[..., Any],
    device: str | Device | None = None,
    *,
    recover: bool | str = False,
    snapshot_every: int = 100,
    fuse: bool = True,
) -> Compiled: ...


@overload
def compile(
    step: None = None,
    device: str | Device | None = None,
    *,
    recover: bool | str = False,
    snapshot_every: int = 100,
    fuse: bool = True,
) -> Callable[[Callable[..., Any]], Compiled]: ...


def compile(
    step: Callable[..., Any] | None = None,
    device: str | Device | None = None,
    *,
    recover: bool | str = False,
    snapshot_every: int = 100,
    fuse: bool = True,
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Record `step` at its first call and replay it afterwards: one submit, no Python per operation.

    The arguments of the step are tensors or arrays (uploaded at each call into fixed buffers) and other hashable
    values, which are constants of the recording. Each combination of shapes, types and constants is recorded once, and
    the 16 used last are kept. So is each combination of the flags that the step reads, `requires_grad` of tensors and
    `training` of modules: when a parameter is frozen, or after ``model.eval()``, the step is recorded again, once. It
    may differentiate and use optimizers made outside; it cannot read values, and Python in it runs only while it is
    recorded. Results are returned in memory of their own.

    Threads may call it concurrently: on one device their calls run one at a time.

    As a decorator, `@ow.compile` or with options `@ow.compile(fuse=False)`, it applies to functions and methods. The
    object of a method is such a constant: each has recordings of its own, which keep it alive, and a replay uses the
    attributes that it had when it was recorded.

    Where the device has no room for all results that the step keeps until its backward pass, launches whose results
    are not used for long are run again instead: the same values for more time (`Explanation.recomputed` counts them).

    Args:
        step: a function of tensors that returns tensors in any nesting of tuples, lists and dicts, or None. Without it
            the result is a decorator with these options.
        device: where to run. By default the device of the parameters and other tensors that the step refers to; if it
            refers to none, that of the first tensor argument, then `optirs_web.device()`. Arguments on another device
            are copied.
        recover: when the device was lost, open it again, continue from the last snapshot and repeat the call that
            failed. Its arguments are arrays then, since tensors are lost with the device. Results that were not read
            before the loss raise DeviceLostError. A name, as `optirs_web.recover` takes it, moves the work there:
            "auto" to the next device that works.
        snapshot_every: calls from one snapshot of all parameters and optimizers to the next.
        fuse: kernels are fused, and in large steps cheap values computed again. A device may round once less within a
            fused kernel; without, a replay gives bit for bit the results of the operations.

    Raises:
        DeviceNotAvailableError: there is no device of the name that `recover` is.
        ValueError: `snapshot_every` is less than 1.
        UnsupportedError: at a call, if the step cannot be recorded; the message says why.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0], device="cpu")
        >>> opt = ow.optim.SGD([w], lr=0.5)
        >>> def train_step(x):
        ...     opt.zero_grad()
        ...     loss = ((w - x) * (w - x)).sum()
        ...     loss.backward()
        ...     opt.step()
        ...     return loss
        >>> step = ow.compile(train_step, device="cpu")
        >>> step([1.0]).item(), step([1.0]).item(), w.tolist()
        (4.0, 0.0, [1.0])
    """
    if step is None:
        return functools.partial(compile, device=device, recover=recover, snapshot_every=snapshot_every, fuse=fuse)
    if not callable(step):
        raise TypeError(f"compile takes a function, not {type(step).__name__}")
    return Compiled(step, device, recover, snapshot_every, fuse)


def prepare(argument: Any) -> Any:
    """Return an argument as a tensor, host data, or an unchanged constant."""
    if isinstance(argument, (Tensor, str, bool, int, float, type(None))):
        return argument
    if isinstance(argument, (list, tuple)):
        try:
            return host_data(argument)
        except UnsupportedError as error:
            raise _not_accepted(argument) from error
    if hasattr(argument, "__array__") or hasattr(argument, "__buffer__"):
        return host_data(argument)
    try:
        return host_data(memoryview(argument))
    except TypeError:
        return argument


def _signature(argument: Any) -> Hashable:
    if isinstance(argument, (Tensor, HostData)):
        return ("tensor", argument.shape, argument.dtype.name)
    try:
        hash(argument)
    except TypeError:
        raise _not_accepted(argument) from None
    return ("constant", type(argument), repr(argument) if isinstance(argument, float) else argument)  # -0.0 == 0.0


def _not_accepted(argument: Any) -> UnsupportedError:
    return UnsupportedError(
        "an argument of a compiled step must be a tensor, an array, nested lists of numbers, or hashable, not "
        f"{quoted(argument)}; pass each tensor of a list or dict as an argument of its own, as in step(*tensors)"
    )


def _input(device: Device, argument: Any) -> Tensor | None:
    """Allocate a fixed buffer for an argument that changes from call to call; None for a constant."""
    if not isinstance(argument, (Tensor, HostData)):
        return None
    if isinstance(argument, Tensor) and argument.requires_grad:
        raise UnsupportedError("an argument of a compiled step has no gradient; let the step refer to its parameters")
    nbytes = argument.dtype.nbytes(math.prod(argument.shape))
    buffer = device.allocate_zeroed(max(4, nbytes))
    return Tensor(View(buffer, 0, nbytes), argument.shape, argument.dtype)


def _check_output(output: Any) -> None:
    match output:
        case None | Tensor():
            return
        case dict() | list() | tuple():
            for value in output.values() if isinstance(output, dict) else output:
                _check_output(value)
        case _:
            raise UnsupportedError(
                f"a compiled step must return tensors in tuples, lists and dicts, not {type(output).__name__}; "
                "other values would be those of the recording"
            )


def _map_tensors(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    match output:
        case Tensor():
            return change(output)
        case dict():
            return {key: _map_tensors(value, change) for key, value in output.items()}
        case tuple() if hasattr(output, "_fields"):
            return type(output)(*(_map_tensors(value, change) for value in output))
        case list() | tuple():
            return type(output)(_map_tensors(value, change) for value in output)
    return output
