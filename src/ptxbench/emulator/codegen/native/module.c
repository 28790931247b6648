/* The Python module: its table of operations, its type and its functions. */
#define PTXBENCH_LANES_MODULE
#include "lanes.h"
#include "operations.h"

/* {name: (number, bytes of each operand)} of all operations. */
static PyObject *table(void) {
    PyObject *made = PyDict_New();
    for (int i = 0; made && i < operation_count; i++) {
        const struct operation *each = operations[i];
        PyObject *entry = Py_BuildValue("(iy#)", i, (const char *)each->takes, (Py_ssize_t)each->operands);
        if (!entry || PyDict_SetItemString(made, each->name, entry)) {
            Py_CLEAR(made);
        }
        Py_XDECREF(entry);
    }
    return made;
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef functions[] = {
    FUNCTION(gather), FUNCTION(scatter), FUNCTION(distinct), FUNCTION(latest), FUNCTION(mark),
    FUNCTION(written), FUNCTION(uniform), FUNCTION(widen), {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ptxbench_lanes",
    .m_doc = "Operations over lanes.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit_ptxbench_lanes(void);
PyMODINIT_FUNC PyInit_ptxbench_lanes(void) {
    import_array();
    if (PyType_Ready(&segment_type)) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    PyObject *names = module ? table() : NULL;
    if (!names || PyModule_AddObject(module, "OPERATIONS", names)) {
        Py_XDECREF(module);
        return NULL;
    }
    if (PyModule_AddObjectRef(module, "Segment", (PyObject *)&segment_type)) {
        Py_CLEAR(module);
    }
    return module;
}
