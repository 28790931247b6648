/* Remembers who wrote and who read which places of a memory, and looks that up; judges nothing. */
#include "places.h"

/* The numbers of an int32 array in order, and how many; NULL with an exception for anything else. */
static int32_t *numbers_of(PyObject *given, Py_ssize_t *size) {
    *size = PyArray_Check(given) ? PyArray_SIZE((PyArrayObject *)given) : 0;
    int32_t *numbers = lane_data(given, sizeof *numbers, *size);
    if (!numbers) {
        PyErr_SetString(PyExc_TypeError, "an array of 32-bit numbers in order is needed");
    }
    return numbers;
}

/* The greatest number at places, and which of them has it first; 0 if none is above that. */
static int32_t greatest(const int32_t *numbers, const struct places *places, Py_ssize_t *where) {
    int32_t most = 0;
    for (Py_ssize_t i = 0; i < places->count; i++) {
        const int32_t number = numbers[place_of(places, i)];
        *where = number > most ? i : *where;
        most = number > most ? number : most;
    }
    return most;
}

/* latest(rows, places): for each row (a list of arrays of one size) with a number above 0 there: its number, the
 * greatest, and which place has that first. */
PyObject *latest(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    struct places places;
    if (count != 2 || !PyList_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "latest takes a list of arrays and places");
        return NULL;
    }
    PyObject *made = PyList_New(0);
    for (Py_ssize_t row = 0; made && row < PyList_GET_SIZE(arguments[0]); row++) {
        Py_ssize_t size, where = 0;
        const int32_t *numbers = numbers_of(PyList_GET_ITEM(arguments[0], row), &size);
        if (!numbers || (!row && chosen(arguments[1], size, &places))) {
            Py_CLEAR(made);
            break;
        }
        const int32_t most = greatest(numbers, &places, &where);
        PyObject *found = most ? Py_BuildValue("(nin)", row, (int)most, where) : NULL;
        if (most && (!found || PyList_Append(made, found))) {
            Py_CLEAR(made);
        }
        Py_XDECREF(found);
    }
    return made;
}

/* mark(places, array, number, ...): puts a number into each array at the places. */
PyObject *mark(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    for (Py_ssize_t at = 1; at + 1 < count; at += 2) {
        struct places places;
        Py_ssize_t size;
        int32_t *numbers = numbers_of(arguments[at], &size);
        const long number = PyLong_AsLong(arguments[at + 1]);
        if (!numbers || (number == -1 && PyErr_Occurred()) || chosen(arguments[0], size, &places)) {
            return NULL;
        }
        for (Py_ssize_t i = 0; i < places.count; i++) {
            numbers[place_of(&places, i)] = (int32_t)number;
        }
    }
    Py_RETURN_NONE;
}

/* written(stored, copied, words): the different numbers of the last writes of words, ascending: of each word the
 * greater one of its own in `stored` and that of its four in `copied`. */
PyObject *written(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    struct places words;
    Py_ssize_t size, chunks;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "written takes two arrays and places");
        return NULL;
    }
    const int32_t *stored = numbers_of(arguments[0], &size);
    const int32_t *copied = stored ? numbers_of(arguments[1], &chunks) : NULL;
    if (!copied || chosen(arguments[2], size < 4 * chunks ? size : 4 * chunks, &words)) {
        return NULL;
    }
    int32_t *kept = malloc((size_t)(words.count + 1) * sizeof *kept);
    if (!kept) {
        return PyErr_NoMemory();
    }
    Py_ssize_t many = 0;
    for (Py_ssize_t i = 0; i < words.count; i++) {
        const Py_ssize_t word = place_of(&words, i);
        const int32_t one = stored[word], other = copied[word >> 2], number = one > other ? one : other;
        if (!many || kept[many - 1] != number) {
            kept[many++] = number;
        }
    }
    PyObject *made = sorted_list(kept, many);
    free(kept);
    return made;
}
