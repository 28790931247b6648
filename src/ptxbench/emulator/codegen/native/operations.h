/* One scalar operation over lanes, as a table entry; which values it takes is decided elsewhere. */
#ifndef PTXBENCH_OPERATIONS_H
#define PTXBENCH_OPERATIONS_H

enum { MOST_OPERANDS = 4 };

/* Writes `lanes` results; the result overlaps no operand. */
typedef void (*operation_run)(void *result, const void *const *operands, long lanes);

struct operation {
    const char *name;
    operation_run run;
    unsigned char operands;
    unsigned char size; /* bytes of a result */
    unsigned char takes[MOST_OPERANDS]; /* bytes of each operand */
};

extern const struct operation *const operations[];
extern const int operation_count;

#endif
