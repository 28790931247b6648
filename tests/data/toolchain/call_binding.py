"""Calls every function of a built binding.cc with good and bad arguments and prints what came of each, as JSON."""

import json
import sys
from typing import Any

import numpy as np
import tvm_ffi

module = tvm_ffi.load_module(sys.argv[1])
tensor = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
strided = np.arange(24, dtype=np.int64).reshape(4, 6)[:, ::2]
empty = np.zeros((0, 5), dtype=np.float16)
roomy = np.zeros((10, 4), dtype=np.int64)
"""`describe` writes up to 40 numbers into its second argument, also where that is its first one."""


calls: list[tuple[str, tuple[Any, ...], Any]] = []
for array in (tensor, strided, empty, tensor.transpose(2, 0, 1)):
    for view in (tvm_ffi.from_dlpack(array), array):
        out = np.full(40, -1, dtype=np.int64)
        calls.append(("describe", (view, tvm_ffi.from_dlpack(out)), out))
strange: list[Any] = [
    None,
    "text",
    b"bytes",
    1,
    True,
    2.5,
    [1, 2],
    tvm_ffi.from_dlpack(roomy),
    tvm_ffi.device("cpu:0"),
]
for name, count in (
    ("describe", 2),
    ("mixed", 5),
    ("whole", 1),
    ("narrow", 1),
    ("byte", 1),
    ("flag", 1),
    ("single", 1),
):
    calls += [(name, (value,) * count, None) for value in strange]
    calls += [(name, (1,) * wrong, None) for wrong in range(count + 2)]
calls += [("whole", (2**62,), None), ("narrow", (2**40 + 5,), None), ("byte", (300,), None), ("flag", (7,), None)]
calls += [
    ("nothing", (), None),
    ("nothing", (1,), None),
    ("functor", (3, tensor), None),
    ("functor", (tensor, 3), None),
]
calls += [("mixed", (1, 2, 3.5, 4.5, True), None), ("mixed", (1, 2, 3, 4, 0), None), ("stream", (), None)]
calls += [("streams", (which,), None) for which in range(9)]
calls += [("checks", (which, a, b), None) for which in range(11) for a, b in ((7, 7), (0, 9), (9, 0))]
calls += [(name, (tensor, index), None) for name in ("caught", "outside") for index in (-1, 0, 2, 3, -4)]

results: list[list[Any]] = []
for name, arguments, out in calls:
    try:
        value = module[name](*arguments)
        result = [type(value).__name__, repr(value)]
    except Exception as error:  # noqa: BLE001  (the outcome is what is compared)
        result = ["raised", type(error).__name__, str(error)]
    results.append(
        [name, repr([type(value).__name__ for value in arguments]), result, out if out is None else out.tolist()]
    )
json.dump(results, sys.stdout)
