/* Looks at chosen places of arrays of 32-bit numbers: which numbers are there, and where the greatest is. */
#include "places.h"

/* Reads a slice or an array; sets an exception for anything else, or for places beyond `size`. */
int chosen(PyObject *given, Py_ssize_t size, struct places *places) {
    *places = (struct places){0, 0, NULL, NULL};
    if (PySlice_Check(given)) {
        Py_ssize_t stop, step;
        if (PySlice_Unpack(given, &places->start, &stop, &step)) {
            return -1;
        }
        places->count = PySlice_AdjustIndices(size, &places->start, &stop, step);
        return 0;
    }
    const long width = PyArray_Check(given) ? PyArray_ITEMSIZE((PyArrayObject *)given) : 0;
    places->count = width ? PyArray_SIZE((PyArrayObject *)given) : 0;
    places->narrow = width == 4 ? lane_data(given, 4, places->count) : NULL;
    places->wide = width == 8 ? lane_data(given, 8, places->count) : NULL;
    int inside = places->narrow || places->wide;
    for (Py_ssize_t i = 0; inside && i < places->count; i++) {
        inside = place_of(places, i) >= 0 && place_of(places, i) < size;
    }
    if (!inside) {
        PyErr_SetString(PyExc_ValueError, "places are a slice, or an array of indices in order");
    }
    return inside ? 0 : -1;
}

static int ascending(const void *one, const void *other) {
    const int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

/* A list of the different numbers, ascending; the array is sorted on the way. */
PyObject *sorted_list(int32_t *numbers, Py_ssize_t count) {
    qsort(numbers, (size_t)count, sizeof *numbers, ascending);
    PyObject *made = PyList_New(0);
    for (Py_ssize_t i = 0; made && i < count; i++) {
        if (i && numbers[i] == numbers[i - 1]) {
            continue;
        }
        PyObject *number = PyLong_FromLong(numbers[i]);
        if (!number || PyList_Append(made, number)) {
            Py_CLEAR(made);
        }
        Py_XDECREF(number);
    }
    return made;
}

/* distinct(numbers, places): the different numbers there, ascending. */
PyObject *distinct(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    struct places places;
    if (count != 2 || !PyArray_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "distinct takes an array and places");
        return NULL;
    }
    const Py_ssize_t size = PyArray_SIZE((PyArrayObject *)arguments[0]);
    const int32_t *numbers = lane_data(arguments[0], sizeof *numbers, size);
    if (!numbers || chosen(arguments[1], size, &places)) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "distinct takes 32-bit numbers in order");
    }
    /* Neighbours are mostly equal: only changes are kept. */
    int32_t *kept = malloc((size_t)(places.count + 1) * sizeof *kept);
    if (!kept) {
        return PyErr_NoMemory();
    }
    Py_ssize_t many = 0;
    for (Py_ssize_t i = 0; i < places.count; i++) {
        const int32_t number = numbers[place_of(&places, i)];
        if (!many || kept[many - 1] != number) {
            kept[many++] = number;
        }
    }
    PyObject *made = sorted_list(kept, many);
    free(kept);
    return made;
}
