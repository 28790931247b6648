/* The layout of the wire, for tests. */
#ifndef PTXBENCH_LAYOUT_H
#define PTXBENCH_LAYOUT_H

void print_layout(void);

#endif
