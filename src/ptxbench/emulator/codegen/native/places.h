/* Chosen places of an array of 32-bit numbers. */
#ifndef PTXBENCH_PLACES_H
#define PTXBENCH_PLACES_H

#include "lanes.h"

/* Places of a row: a slice, or an array of 4 or 8-byte indices. */
struct places {
    Py_ssize_t count, start;
    const int32_t *narrow;
    const int64_t *wide;
};

static inline Py_ssize_t place_of(const struct places *places, Py_ssize_t i) {
    return places->narrow ? places->narrow[i] : places->wide ? (Py_ssize_t)places->wide[i] : places->start + i;
}

int chosen(PyObject *given, Py_ssize_t size, struct places *places);
PyObject *sorted_list(int32_t *numbers, Py_ssize_t count);

#endif
