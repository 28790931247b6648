/* Datagrams to and from the judge over one unix socket; knows the framing, not the meaning. */
#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int channel_connect(struct channel *channel, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    channel->sequence = 0;
    channel->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (channel->socket < 0)
        return -1;
    return connect(channel->socket, (struct sockaddr *)&address, sizeof address);
}

static int descriptor_of(struct msghdr *message) {
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    int descriptor = -1;
    if (control != NULL && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
        memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
    return descriptor;
}

int channel_receive(struct channel *channel, union wire_orders *order, int *descriptor) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {order, sizeof *order};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg(channel->socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < (ssize_t)sizeof order->header || (message.msg_flags & MSG_TRUNC))
        return -1;
    if (order->header.magic != WIRE_MAGIC || order->header.version != WIRE_VERSION || order->header.size != got)
        return -1;
    channel->sequence = order->header.sequence;
    *descriptor = descriptor_of(&message);
    return 0;
}

void channel_send(const struct channel *channel, enum wire_kind kind, void *message, size_t size) {
    struct wire_header *header = message;
    *header = (struct wire_header){WIRE_MAGIC, WIRE_VERSION, (uint16_t)kind, channel->sequence, (uint32_t)size};
    ssize_t sent;
    do
        sent = send(channel->socket, message, size, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)size)
        _exit(111);
}

void channel_progress(const struct channel *channel, enum wire_phase phase, uint64_t host_ns) {
    struct wire_progress progress = {.phase = phase, .host_ns = host_ns};
    channel_send(channel, WIRE_PROGRESS, &progress, sizeof progress);
}

void channel_done(const struct channel *channel, struct wire_done *done) {
    channel_send(channel, WIRE_DONE, done, sizeof *done);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
