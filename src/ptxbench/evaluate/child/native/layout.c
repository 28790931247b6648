/* Prints the sizes and offsets of the wire's structs as JSON, for the test that compares them with wire.py. */
#include "layout.h"

#include <stddef.h>
#include <stdio.h>

#include "wire.h"

#define SIZE(type) printf("\"%s\": %zu, ", #type, sizeof(struct type))
#define OFFSET(type, field) printf("\"%s.%s\": %zu, ", #type, #field, offsetof(struct type, field))

void print_layout(void) {
    printf("{");
    SIZE(wire_header), SIZE(wire_setup), SIZE(wire_map), SIZE(wire_argument), SIZE(wire_call), SIZE(wire_order);
    SIZE(wire_progress), SIZE(wire_protection), SIZE(wire_name), SIZE(wire_module), SIZE(wire_spans), SIZE(wire_done);
    SIZE(span_result), SIZE(span_entry), SIZE(span_module), SIZE(span_failure);
    OFFSET(wire_setup, cuda), OFFSET(wire_setup, symbol), OFFSET(wire_setup, hidden), OFFSET(wire_setup, needed);
    OFFSET(wire_argument, offset), OFFSET(wire_argument, bytes), OFFSET(wire_argument, shape);
    OFFSET(wire_call, arguments), OFFSET(wire_progress, host_ns), OFFSET(wire_protection, reason);
    OFFSET(wire_name, text), OFFSET(wire_module, sha256), OFFSET(wire_spans, result);
    OFFSET(wire_done, host_ns), OFFSET(wire_done, text), OFFSET(span_result, records), OFFSET(span_result, entries);
    printf("\"version\": %d}\n", WIRE_VERSION);
}
