/* The candidate process's end of the channel to the judge. */
#ifndef PTXBENCH_CHANNEL_H
#define PTXBENCH_CHANNEL_H

#include <stddef.h>

#include "wire.h"

struct channel {
    int socket;
    uint32_t sequence; /* of the order being answered */
};

union wire_orders {
    struct wire_header header;
    struct wire_setup setup;
    struct wire_map map;
    struct wire_call call;
    struct wire_order order;
};

/* Connect to the judge's SOCK_SEQPACKET socket. Returns 0 or -1 with errno. */
int channel_connect(struct channel *channel, const char *path);

/* Wait for one order and the descriptor that may come with it (-1: none). Returns 0, or -1 where the judge is gone or
 * the message is not one of ours. */
int channel_receive(struct channel *channel, union wire_orders *order, int *descriptor);

/* Fill in the header and send; the process ends where the judge is gone. */
void channel_send(const struct channel *channel, enum wire_kind kind, void *message, size_t size);

void channel_progress(const struct channel *channel, enum wire_phase phase, uint64_t host_ns);

/* Answer an order. `code_name` and `text` may be NULL. */
void channel_done(const struct channel *channel, struct wire_done *done);

/* Monotonic clock in nanoseconds. */
uint64_t now_ns(void);

#endif
