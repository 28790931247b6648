/* Lanes read and write bytes that lie together; whatever is out of the ordinary is refused and left to the caller. */
#include <string.h>

#include "lanes.h"

/* Where lanes go.
 *
 * Lane i uses bytes[address - origin], which must lie in low..high. */
struct access {
    char *bytes;
    uint64_t low, high, origin;
    const void *addresses;
    const unsigned char *mask; /* NULL: all lanes */
    long lanes;
    int narrow; /* whether addresses have 32 bits */
    long width, count;
};

static uint64_t number(PyObject *given) {
    return PyLong_AsUnsignedLongLongMask(given);
}

/* Reads (bytes, low, high, origin, addresses, mask, width, count); false if the arrays are not what they should be. */
static int understood(struct access *access, PyObject *const *arguments) {
    PyArrayObject *addresses = (PyArrayObject *)arguments[4];
    if (!PyArray_Check(arguments[0]) || !PyArray_Check(arguments[4])) {
        return 0;
    }
    access->bytes = PyArray_BYTES((PyArrayObject *)arguments[0]);
    access->low = number(arguments[1]);
    access->high = number(arguments[2]);
    access->origin = number(arguments[3]);
    access->lanes = PyArray_SIZE(addresses);
    access->narrow = PyArray_ITEMSIZE(addresses) == 4;
    access->addresses = lane_data(arguments[4], access->narrow ? 4 : 8, access->lanes);
    access->mask = arguments[5] == Py_None ? NULL : lane_data(arguments[5], 1, access->lanes);
    access->width = PyLong_AsLong(arguments[6]);
    access->count = PyLong_AsLong(arguments[7]);
    if (access->narrow && access->origin >> 32) {
        return 0;
    }
    return access->addresses && (access->mask || arguments[5] == Py_None) && !PyErr_Occurred();
}

static uint64_t offset_of(const struct access *access, long lane) {
    if (access->narrow) {
        return ((const uint32_t *)access->addresses)[lane] - (uint32_t)access->origin;
    }
    return ((const uint64_t *)access->addresses)[lane] - access->origin;
}

/* Whether all active lanes stay within bounds and are aligned. */
static int fits(const struct access *access) {
    const uint64_t size = (uint64_t)(access->width * access->count);
    if (access->high - access->low < size) {
        return 0;
    }
    const uint64_t room = access->high - access->low - size;
    uint64_t wrong = 0;
    for (long i = 0; i < access->lanes; i++) {
        const uint64_t offset = offset_of(access, i);
        const uint64_t bad = (offset - access->low > room) | (offset & (size - 1));
        wrong |= access->mask && !access->mask[i] ? 0 : bad;
    }
    return !wrong;
}

#define LOOP(type, move)                                        \
    for (long i = 0; i < access->lanes; i++) {                  \
        if (!access->mask || access->mask[i]) {                 \
            type *there = (type *)(access->bytes + offset_of(access, i)) + place; \
            move;                                               \
        }                                                       \
    }
#define BY_WIDTH(move)                                          \
    switch (access->width) {                                    \
    case 1: LOOP(uint8_t, move) break;                          \
    case 2: LOOP(uint16_t, move) break;                         \
    case 4: LOOP(uint32_t, move) break;                         \
    default: LOOP(uint64_t, move) break;                        \
    }

static void read_lanes(const struct access *access, long place, void *into) {
    if (access->mask) {
        memset(into, 0, (size_t)(access->lanes * access->width));
    }
    BY_WIDTH(memcpy((char *)into + i * access->width, there, sizeof *there))
}

static void write_lanes(const struct access *access, long place, const void *from) {
    BY_WIDTH(memcpy(there, (const char *)from + i * access->width, sizeof *there))
}

/* gather(bytes, low, high, origin, addresses, mask, width, count): a list of `count` arrays, zeros in lanes outside of
 * the mask; None if a lane is out of bounds or misaligned, or an array is out of the ordinary. */
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    struct access access;
    if (count != 8 || !understood(&access, arguments) || !fits(&access)) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *made = PyList_New(access.count);
    npy_intp shape[1] = {access.lanes};
    for (long place = 0; made && place < access.count; place++) {
        const int type = access.width == 1 ? NPY_UINT8 : lane_type(access.width);
        PyObject *array = PyArray_SimpleNew(1, shape, type);
        if (!array) {
            Py_CLEAR(made);
            break;
        }
        read_lanes(&access, place, PyArray_DATA((PyArrayObject *)array));
        PyList_SET_ITEM(made, place, array);
    }
    return made;
}

/* scatter(..., as gather, values): whether it wrote; of lanes that write one place the highest wins. */
PyObject *scatter(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    struct access access;
    if (count != 9 || !PyList_Check(arguments[8]) || !understood(&access, arguments) || !fits(&access)) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    for (long place = 0; place < access.count; place++) {
        if (PyList_GET_SIZE(arguments[8]) != access.count ||
            !lane_data(PyList_GET_ITEM(arguments[8], place), access.width, access.lanes)) {
            Py_RETURN_FALSE;
        }
    }
    for (long place = 0; place < access.count; place++) {
        write_lanes(&access, place, lane_data(PyList_GET_ITEM(arguments[8], place), access.width, access.lanes));
    }
    Py_RETURN_TRUE;
}

static uint64_t element(const void *data, long size, long lane) {
    uint64_t value = 0;
    memcpy(&value, (const char *)data + lane * size, (size_t)size);
    return value;
}

/* Whether all active lanes hold what the first of them holds, which is stored; -1: nothing can be said. */
static int same(PyObject *given, const unsigned char *mask, long lanes, uint64_t *value) {
    const long size = PyArray_Check(given) ? PyArray_ITEMSIZE((PyArrayObject *)given) : 0;
    const void *data = size == 1 || size == 2 || size == 4 || size == 8 ? lane_data(given, size, lanes) : NULL;
    long lane = 0;
    while (data && mask && lane < lanes && !mask[lane]) {
        lane++;
    }
    if (!data || lane == lanes) {
        return -1;
    }
    *value = element(data, size, lane);
    uint64_t different = 0;
    for (; lane < lanes; lane++) {
        different |= mask && !mask[lane] ? 0 : element(data, size, lane) ^ *value;
    }
    return !different;
}

/* uniform(mask, array, ...): what all active lanes hold, a tuple with a number for each array; None if they differ, or
 * no lane is active, or an array is out of the ordinary. */
PyObject *uniform(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 2 || !PyArray_Check(arguments[1])) {
        Py_RETURN_NONE;
    }
    const long lanes = PyArray_SIZE((PyArrayObject *)arguments[1]);
    const unsigned char *mask = arguments[0] == Py_None ? NULL : lane_data(arguments[0], 1, lanes);
    PyObject *made = mask || arguments[0] == Py_None ? PyTuple_New(count - 1) : Py_NewRef(Py_None);
    for (Py_ssize_t i = 1; made && made != Py_None && i < count; i++) {
        uint64_t value;
        PyObject *number = same(arguments[i], mask, lanes, &value) == 1 ? PyLong_FromUnsignedLongLong(value) : NULL;
        if (!number) {
            Py_DECREF(made);
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        }
        PyTuple_SET_ITEM(made, i - 1, number);
    }
    return made;
}

/* widen(bytes, chunks): the bfloat16 numbers of 16-byte chunks, by number [rows, columns], as float32 [rows, 8 columns];
 * None if a chunk is not there, or an array is out of the ordinary. */
PyObject *widen(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyArray_Check(arguments[0]) || !PyArray_Check(arguments[1])) {
        Py_RETURN_NONE;
    }
    PyArrayObject *chunks = (PyArrayObject *)arguments[1];
    const npy_intp many = PyArray_SIZE(chunks), room = PyArray_SIZE((PyArrayObject *)arguments[0]) / 16;
    const unsigned char *bytes = lane_data(arguments[0], 1, PyArray_SIZE((PyArrayObject *)arguments[0]));
    const int64_t *numbers = PyArray_NDIM(chunks) == 2 ? lane_data(arguments[1], sizeof *numbers, many) : NULL;
    if (!bytes || !numbers) {
        Py_RETURN_NONE;
    }
    npy_intp shape[2] = {PyArray_DIM(chunks, 0), PyArray_DIM(chunks, 1) * 8};
    PyObject *made = PyArray_SimpleNew(2, shape, NPY_FLOAT32);
    uint32_t *values = made ? PyArray_DATA((PyArrayObject *)made) : NULL;
    for (npy_intp i = 0; made && i < many; i++) {
        if (numbers[i] < 0 || numbers[i] >= room) {
            Py_DECREF(made);
            Py_RETURN_NONE;
        }
        uint16_t halves[8];
        memcpy(halves, bytes + 16 * numbers[i], sizeof halves);
        for (int j = 0; j < 8; j++) {
            values[8 * i + j] = (uint32_t)halves[j] << 16;
        }
    }
    return made;
}
