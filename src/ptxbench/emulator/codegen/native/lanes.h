/* What the parts of the core share: Python and NumPy, and the types of arrays over lanes. */
#ifndef PTXBENCH_LANES_H
#define PTXBENCH_LANES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL ptxbench_lanes_array
#ifndef PTXBENCH_LANES_MODULE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

extern PyTypeObject segment_type;
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *scatter(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *uniform(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *widen(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *distinct(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *latest(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *mark(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *written(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* NumPy's type of lanes whose elements have `size` bytes. */
static inline int lane_type(long size) {
    return size == 1 ? NPY_BOOL : size == 2 ? NPY_UINT16 : size == 4 ? NPY_UINT32 : NPY_UINT64;
}

/* The elements of an array over lanes; NULL if it is none, or none of this size and number, or not in order. */
static inline void *lane_data(PyObject *given, long size, long lanes) {
    if (!PyArray_Check(given)) {
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)given;
    const int fits = PyArray_ITEMSIZE(array) == size && PyArray_SIZE(array) == lanes && PyArray_IS_C_CONTIGUOUS(array);
    return fits ? PyArray_DATA(array) : NULL;
}

#endif
