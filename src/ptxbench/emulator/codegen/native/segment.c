/* Runs of scalar operations over lanes as one Python call; knows no PTX and no machine.
 *
 * A segment numbers its values: inputs, constants, then one result per operation. Called with the number of lanes and
 * one array per input it answers the outputs as new arrays: none, one, or a tuple. */
#include <stddef.h>
#include <string.h>

#include "lanes.h"
#include "operations.h"

typedef struct {
    int operation;
    int operands[MOST_OPERANDS];
} step;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    int inputs, constants, steps, outputs;
    uint64_t *constant;
    step *program;
    int *output;
    unsigned char *size; /* bytes of an element, by value */
    void **place;        /* where each value lies, by value */
    char *scratch;       /* constants and results that are no output, spread over `lanes` */
    long lanes;
} segment;

static void fill(void *place, int size, uint64_t value, long lanes) {
    for (long i = 0; i < lanes; i++) {
        memcpy((char *)place + i * size, &value, (size_t)size);
    }
}

/* Places for constants and results over this many lanes. */
static int spread(segment *self, long lanes) {
    const int own = self->constants + self->steps;
    const size_t row = (size_t)lanes * 8;
    char *room = realloc(self->scratch, row * (size_t)own + 1);
    if (!room) {
        PyErr_NoMemory();
        return -1;
    }
    self->scratch = room;
    self->lanes = lanes;
    for (int i = 0; i < self->constants; i++) {
        self->place[self->inputs + i] = room + row * (size_t)i;
        fill(self->place[self->inputs + i], self->size[self->inputs + i], self->constant[i], lanes);
    }
    return 0;
}

/* Points the results at scratch; outputs get arrays of their own. */
static int make_outputs(segment *self, long lanes, PyObject **made) {
    const int first = self->inputs + self->constants;
    for (int i = 0; i < self->steps; i++) {
        self->place[first + i] = self->scratch + (size_t)lanes * 8 * (size_t)(self->constants + i);
    }
    npy_intp shape[1] = {lanes};
    for (int i = 0; i < self->outputs; i++) {
        const int value = self->output[i];
        made[i] = PyArray_SimpleNew(1, shape, lane_type(self->size[value]));
        if (!made[i]) {
            return -1;
        }
        self->place[value] = PyArray_DATA((PyArrayObject *)made[i]);
    }
    return 0;
}

/* The bytes of an input; one that does not lie in order is copied, and the copy kept in `held`. */
static void *input_data(PyObject *given, int size, long lanes, PyObject **held) {
    if (!PyArray_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "an input of a segment is no array");
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)given;
    if (PyArray_SIZE(array) != lanes || PyArray_ITEMSIZE(array) != size) {
        PyErr_Format(PyExc_ValueError, "an input of a segment has %zd elements of %zd bytes, not %ld of %d",
                     (Py_ssize_t)PyArray_SIZE(array), (Py_ssize_t)PyArray_ITEMSIZE(array), lanes, size);
        return NULL;
    }
    if (!PyArray_IS_C_CONTIGUOUS(array)) {
        *held = (PyObject *)PyArray_GETCONTIGUOUS(array);
        return *held ? PyArray_DATA((PyArrayObject *)*held) : NULL;
    }
    return PyArray_DATA(array);
}

static void run_steps(segment *self, long lanes) {
    const int first = self->inputs + self->constants;
    for (int i = 0; i < self->steps; i++) {
        const step *each = &self->program[i];
        const struct operation *operation = operations[each->operation];
        const void *operands[MOST_OPERANDS];
        for (int j = 0; j < operation->operands; j++) {
            operands[j] = self->place[each->operands[j]];
        }
        operation->run(self->place[first + i], operands, lanes);
    }
}

/* The arrays as an answer; takes them over. */
static PyObject *answer(PyObject **made, int count) {
    if (count == 1) {
        return made[0];
    }
    if (!count) {
        Py_RETURN_NONE;
    }
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; i < count; i++) {
        if (tuple) {
            PyTuple_SET_ITEM(tuple, i, made[i]);
        } else {
            Py_DECREF(made[i]);
        }
    }
    return tuple;
}

static PyObject *run_over(segment *self, long lanes, PyObject *const *inputs, PyObject **made, PyObject **held) {
    if (lanes != self->lanes && spread(self, lanes)) {
        return NULL;
    }
    for (int i = 0; i < self->inputs; i++) {
        self->place[i] = input_data(inputs[i], self->size[i], lanes, &held[i]);
        if (!self->place[i]) {
            return NULL;
        }
    }
    if (make_outputs(self, lanes, made)) {
        return NULL;
    }
    run_steps(self, lanes);
    return answer(made, self->outputs);
}

static PyObject *segment_call(PyObject *object, PyObject *const *arguments, size_t flags, PyObject *names) {
    segment *self = (segment *)object;
    const long lanes = PyVectorcall_NARGS(flags) == self->inputs + 1 && !names ? PyLong_AsLong(arguments[0]) : 0;
    if (lanes <= 0) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "a segment is called with the number of lanes and %d arrays", self->inputs);
        }
        return NULL;
    }
    PyObject **kept = calloc((size_t)(self->outputs + self->inputs) + 1, sizeof *kept);
    if (!kept) {
        return PyErr_NoMemory();
    }
    PyObject *result = run_over(self, lanes, arguments + 1, kept, kept + self->outputs);
    for (int i = 0; i < self->outputs && !result; i++) {
        Py_XDECREF(kept[i]);
    }
    for (int i = 0; i < self->inputs; i++) {
        Py_XDECREF(kept[self->outputs + i]);
    }
    free(kept);
    return result;
}

/* Whether every step names an operation and earlier values, and every output a result. */
static int is_sound(const segment *self) {
    const int first = self->inputs + self->constants;
    for (int i = 0; i < self->steps; i++) {
        const step *each = &self->program[i];
        if (each->operation < 0 || each->operation >= operation_count) {
            return 0;
        }
        for (int j = 0; j < operations[each->operation]->operands; j++) {
            if (each->operands[j] < 0 || each->operands[j] >= first + i) {
                return 0;
            }
        }
    }
    for (int i = 0; i < self->outputs; i++) {
        if (self->output[i] < first || self->output[i] >= first + self->steps) {
            return 0;
        }
    }
    return 1;
}

static void *copy_of(const void *bytes, Py_ssize_t size) {
    void *made = malloc((size_t)size + 1);
    if (made) {
        memcpy(made, bytes, (size_t)size);
    }
    return made;
}

static int set_up(segment *self, const Py_buffer *sizes, const Py_buffer *constants, const Py_buffer *program,
                  const Py_buffer *outputs) {
    self->constants = (int)(constants->len / (Py_ssize_t)sizeof(uint64_t));
    self->inputs = (int)sizes->len - self->constants;
    self->steps = (int)(program->len / (Py_ssize_t)sizeof(step));
    self->outputs = (int)(outputs->len / (Py_ssize_t)sizeof(int));
    self->constant = copy_of(constants->buf, constants->len);
    self->program = copy_of(program->buf, program->len);
    self->output = copy_of(outputs->buf, outputs->len);
    self->size = calloc((size_t)sizes->len + (size_t)self->steps + 1, 1);
    self->place = calloc((size_t)sizes->len + (size_t)self->steps + 1, sizeof *self->place);
    if (!self->constant || !self->program || !self->output || !self->size || !self->place) {
        PyErr_NoMemory();
        return -1;
    }
    if (self->inputs < 0 || !is_sound(self)) {
        PyErr_SetString(PyExc_ValueError, "a segment names values or operations that are not there");
        return -1;
    }
    memcpy(self->size, sizes->buf, (size_t)sizes->len);
    for (int i = 0; i < self->steps; i++) {
        self->size[sizes->len + i] = operations[self->program[i].operation]->size;
    }
    return 0;
}

/* Segment(sizes of inputs and constants, constants, steps, outputs), each as bytes. */
static PyObject *segment_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    Py_buffer sizes, constants, program, outputs;
    if (names || !PyArg_ParseTuple(arguments, "y*y*y*y*", &sizes, &constants, &program, &outputs)) {
        return NULL;
    }
    segment *self = (segment *)type->tp_alloc(type, 0);
    if (self) {
        self->call = segment_call;
        if (set_up(self, &sizes, &constants, &program, &outputs)) {
            Py_CLEAR(self);
        }
    }
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&constants);
    PyBuffer_Release(&program);
    PyBuffer_Release(&outputs);
    return (PyObject *)self;
}

static void segment_dealloc(PyObject *object) {
    segment *self = (segment *)object;
    void *owned[] = {self->constant, self->program, self->output, self->size, self->place, self->scratch};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        free(owned[i]);
    }
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject segment_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "ptxbench_lanes.Segment",
    .tp_doc = "A run of scalar operations over lanes.",
    .tp_basicsize = sizeof(segment),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(segment, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = segment_new,
    .tp_dealloc = segment_dealloc,
};
