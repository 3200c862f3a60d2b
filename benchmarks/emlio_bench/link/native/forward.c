/* The inner loop of an emulated link: reads packets of two TUN devices, holds each for its delay, and writes it to the other.

   Does not cover: the devices; IPv6, which the links do not carry. One thread calls all functions of a pair of lines, and forward() keeps that
   thread until a descriptor that is not a device is ready. Memory: packets that are held, up to the line's limit. */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FORWARD_ABI 2

enum {
    OFFLOAD_BYTES = 10, /* struct virtio_net_hdr */
    PACKET_BYTES = OFFLOAD_BYTES + 65535,
    SMALL_BYTES = 2048, /* acknowledgements get memory of their own size */
    BATCH_PACKETS = 32, /* packets read from one end before the other end is checked */
    MOST_OTHERS = 8,
    TCP_IPV4 = 1,
    CONGESTION_FLAG = 0x80,
};

static const int64_t SECOND_NS = 1000000000;
static const int64_t STRETCH_NS = 20000000;
static const int64_t MOST_STRETCHES = 90000; /* half an hour; beyond it, the oldest half is forgotten */
static const int64_t WATCHED_NS = 250000;    /* about the delay of timers on an idle virtual machine */
static const int64_t WATCHED_PART = 20;

struct stretch {
    int64_t number, mean_bytes, most_bytes;
};

struct counts {
    int64_t packets, wire_bytes, overflowed, refused, latest_ns;
};

struct packet {
    int64_t due_ns;
    uint8_t *data;
    uint32_t size;
    uint32_t small;
};

struct line {
    int source, target;
    int64_t delay_ns, rate, most_bytes;
    int64_t free_ns, held_bytes;
    struct counts counts;
    struct packet *queue; /* a ring; its size is a power of two */
    uint64_t first, next, mask;
    uint8_t **spare; /* buffers of PACKET_BYTES that hold nothing; the one used last is taken first, for its memory is in the cache */
    size_t spares, spare_room;
    int gauged;
    int64_t number, end_ns, begun_ns, noted_ns, byte_ns, noted_bytes, most;
    struct stretch *stretches;
    int64_t ended, stretch_room;
};

static int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * SECOND_NS + at.tv_nsec;
}

/* ---- what a packet is on a wire ---- */

static int64_t wire_bytes(const uint8_t *packet, int64_t size)
{
    int64_t length = size - OFFLOAD_BYTES, full, headers, payload;
    uint16_t segment;
    size_t ip;
    if ((packet[1] & ~CONGESTION_FLAG) != TCP_IPV4 || size < OFFLOAD_BYTES + 20)
        return length;
    ip = (size_t)(packet[OFFLOAD_BYTES] & 0x0F) * 4;
    memcpy(&segment, packet + 4, sizeof segment); /* gso_size, in the order of this machine */
    full = segment;
    if (full == 0 || size <= (int64_t)(OFFLOAD_BYTES + ip + 12))
        return length;
    /* The field hdr_len is not used: it tells how much is contiguous in the kernel, which may be more. */
    headers = (int64_t)ip + (packet[OFFLOAD_BYTES + ip + 12] >> 4) * 4;
    payload = length - headers;
    return payload <= full ? length : length + ((payload + full - 1) / full - 1) * headers;
}

/* ---- the bytes held over time ---- */

static void end_stretch(struct line *line)
{
    int64_t span_ns = line->end_ns - line->begun_ns;
    struct stretch *one;
    if (line->ended == MOST_STRETCHES) {
        line->ended -= MOST_STRETCHES / 2;
        memmove(line->stretches, line->stretches + MOST_STRETCHES / 2, (size_t)line->ended * sizeof *one);
    }
    if (line->ended == line->stretch_room) {
        int64_t room = line->stretch_room ? 2 * line->stretch_room : 256;
        struct stretch *larger = realloc(line->stretches, (size_t)room * sizeof *larger);
        if (larger == NULL)
            abort(); /* the process that started this one tells of its end */
        line->stretches = larger;
        line->stretch_room = room;
    }
    line->byte_ns += line->noted_bytes * (line->end_ns - line->noted_ns);
    one = &line->stretches[line->ended++];
    one->number = line->number;
    one->mean_bytes = line->byte_ns / (span_ns > 1 ? span_ns : 1);
    one->most_bytes = line->most;
    line->begun_ns = line->noted_ns = line->end_ns;
    line->number++;
    line->end_ns += STRETCH_NS;
    line->byte_ns = 0;
    line->most = line->noted_bytes;
}

static void pass_time(struct line *line, int64_t now_ns)
{
    while (now_ns >= line->end_ns)
        end_stretch(line);
    line->byte_ns += line->noted_bytes * (now_ns - line->noted_ns);
    line->noted_ns = now_ns;
}

static void note(struct line *line, int64_t now_ns)
{
    if (!line->gauged || line->held_bytes == line->noted_bytes)
        return;
    pass_time(line, now_ns);
    line->noted_bytes = line->held_bytes;
    if (line->held_bytes > line->most)
        line->most = line->held_bytes;
}

/* ---- memory ---- */

static uint8_t *buffer(struct line *line)
{
    uint8_t *one = line->spares ? line->spare[--line->spares] : malloc(PACKET_BYTES);
    if (one == NULL)
        abort();
    return one;
}

static void give_back(struct line *line, uint8_t *one)
{
    if (line->spares == line->spare_room) {
        size_t room = line->spare_room ? 2 * line->spare_room : 256;
        uint8_t **larger = realloc(line->spare, room * sizeof *larger);
        if (larger == NULL)
            abort();
        line->spare = larger;
        line->spare_room = room;
    }
    line->spare[line->spares++] = one;
}

static void queue(struct line *line, struct packet packet)
{
    if (line->queue == NULL || line->next - line->first > line->mask) {
        uint64_t held = line->next - line->first, room = line->queue == NULL ? 1024 : 2 * (line->mask + 1), n;
        struct packet *larger = malloc(room * sizeof *larger);
        if (larger == NULL)
            abort();
        for (n = 0; n < held; n++)
            larger[n] = line->queue[(line->first + n) & line->mask];
        free(line->queue);
        line->queue = larger;
        line->mask = room - 1;
        line->first = 0;
        line->next = held;
    }
    line->queue[line->next++ & line->mask] = packet;
}

/* ---- moving packets ---- */

/* Read one batch; return 0, or -1 if the device is no more. */
static int take(struct line *line)
{
    int left;
    for (left = BATCH_PACKETS; left > 0; left--) {
        uint8_t *data = buffer(line);
        ssize_t size = read(line->source, data, PACKET_BYTES);
        struct packet packet;
        int64_t now_ns, sent_ns, wire;
        if (size <= OFFLOAD_BYTES) {
            int why = size < 0 ? errno : EAGAIN;
            give_back(line, data);
            if (why == EINTR)
                continue;
            return why == EAGAIN ? 0 : -1;
        }
        now_ns = now();
        if (line->held_bytes + size > line->most_bytes) {
            line->counts.overflowed++;
            give_back(line, data);
            continue;
        }
        wire = wire_bytes(data, size);
        sent_ns = now_ns;
        if (line->rate) { /* rounded up, so that a line is never faster than specified */
            if (line->free_ns > now_ns)
                sent_ns = line->free_ns;
            sent_ns += (int64_t)(((__int128)wire * SECOND_NS + line->rate - 1) / line->rate);
            line->free_ns = sent_ns;
        }
        packet.small = size <= SMALL_BYTES;
        packet.size = (uint32_t)size;
        packet.due_ns = sent_ns + line->delay_ns;
        packet.data = data;
        if (packet.small) {
            packet.data = malloc((size_t)size);
            if (packet.data == NULL)
                abort();
            memcpy(packet.data, data, (size_t)size);
            give_back(line, data);
        }
        line->held_bytes += size;
        line->counts.packets++;
        line->counts.wire_bytes += wire;
        queue(line, packet);
        note(line, now_ns);
    }
    return 0;
}

/* Write what is due; return when the next packet is due, or -1 if there is none. */
static int64_t give(struct line *line)
{
    while (line->first != line->next) {
        struct packet packet = line->queue[line->first & line->mask];
        int64_t now_ns = now();
        ssize_t written;
        if (packet.due_ns > now_ns)
            return packet.due_ns;
        line->first++;
        line->held_bytes -= packet.size;
        if (now_ns - packet.due_ns > line->counts.latest_ns)
            line->counts.latest_ns = now_ns - packet.due_ns;
        do
            written = write(line->target, packet.data, packet.size);
        while (written < 0 && errno == EINTR);
        if (written < 0)
            line->counts.refused++; /* counted and reported: a router also drops packets that it cannot deliver */
        if (packet.small)
            free(packet.data);
        else
            give_back(line, packet.data);
        note(line, now_ns);
    }
    return -1;
}

static int64_t sooner(int64_t one, int64_t other)
{
    return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* Wait until a descriptor is ready or the time has come. Timers are late, so the last part of the wait is polling. */
static int ready(struct pollfd *watched, int count, int64_t due_ns)
{
    struct timespec wait = {0, 0};
    int64_t left_ns, early_ns;
    int found;
    if (due_ns < 0)
        return ppoll(watched, (nfds_t)count, NULL, NULL);
    left_ns = due_ns - now();
    if (left_ns <= 0)
        return ppoll(watched, (nfds_t)count, &wait, NULL);
    early_ns = left_ns / WATCHED_PART < WATCHED_NS ? left_ns / WATCHED_PART : WATCHED_NS;
    wait.tv_sec = (left_ns - early_ns) / SECOND_NS;
    wait.tv_nsec = (left_ns - early_ns) % SECOND_NS;
    found = ppoll(watched, (nfds_t)count, &wait, NULL);
    wait.tv_sec = wait.tv_nsec = 0;
    while (found == 0 && now() < due_ns)
        found = ppoll(watched, (nfds_t)count, &wait, NULL);
    return found;
}

/* ---- what Python calls ---- */

int forward_abi(void) { return FORWARD_ABI; }

struct line *line_open(int source, int target, int64_t delay_ns, int64_t rate, int64_t most_bytes)
{
    struct line *line = calloc(1, sizeof *line);
    if (line == NULL)
        return NULL;
    line->source = source;
    line->target = target;
    line->delay_ns = delay_ns;
    line->rate = rate;
    line->most_bytes = most_bytes;
    return line;
}

/* Carry packets with another delay and rate from now on. Those that are held keep their time and their order. */
void line_change(struct line *line, int64_t delay_ns, int64_t rate, int64_t most_bytes)
{
    line->delay_ns = delay_ns;
    line->rate = rate;
    line->most_bytes = most_bytes;
    line->free_ns = 0;
}

void line_close(struct line *line)
{
    for (; line->first != line->next; line->first++)
        free(line->queue[line->first & line->mask].data);
    while (line->spares)
        free(line->spare[--line->spares]);
    free(line->spare);
    free(line->queue);
    free(line->stretches);
    free(line);
}

void line_counts(const struct line *line, struct counts *out) { *out = line->counts; }

/* End the stretches that are over, and return how many there are. The first call starts the recording. */
int64_t line_gauge(struct line *line)
{
    int64_t now_ns = now();
    if (!line->gauged) {
        line->gauged = 1;
        line->number = now_ns / STRETCH_NS;
        line->end_ns = (line->number + 1) * STRETCH_NS;
        line->begun_ns = line->noted_ns = now_ns;
        note(line, now_ns);
    }
    pass_time(line, now_ns);
    return line->ended;
}

/* Hand over the first stretches, and forget them. */
void line_take_stretches(struct line *line, struct stretch *out, int64_t count)
{
    memcpy(out, line->stretches, (size_t)count * sizeof *out);
    line->ended -= count;
    memmove(line->stretches, line->stretches + count, (size_t)line->ended * sizeof *out);
}

/* Move packets until one of the other descriptors is ready. Return a bit for each that is, or -1 if there are too many, -2 if
   a descriptor is none (any more). */
int forward(struct line *one, struct line *other, const int *others, int count)
{
    struct pollfd watched[2 + MOST_OTHERS];
    int n;
    if (count < 0 || count > MOST_OTHERS)
        return -1;
    for (n = 0; n < 2 + count; n++) {
        watched[n].fd = n == 0 ? one->source : n == 1 ? other->source : others[n - 2];
        watched[n].events = POLLIN;
    }
    for (;;) {
        int64_t first_ns = give(one), due_ns = sooner(first_ns, give(other));
        int found = ready(watched, 2 + count, due_ns), told = 0;
        if (found < 0) {
            if (errno == EINTR)
                continue; /* the signal's descriptor tells of it */
            return -2;
        }
        if (found == 0)
            continue;
        if ((watched[0].revents && take(one) < 0) || (watched[1].revents && take(other) < 0))
            return -2;
        for (n = 0; n < count; n++)
            if (watched[2 + n].revents)
                told |= 1 << n;
        if (told)
            return told;
    }
}
