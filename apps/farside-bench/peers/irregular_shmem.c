/* What irregular.c needs, for OpenSHMEM: atomics, puts and gets that wait as bale's do, and shmem_alltoall64. */
#include <math.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY "openshmem"

enum { ITEMS = 1024, PROCESSES_MAX = 1024 };

/* Items for one process, and whether the sender has any for some process. */
typedef struct {
    int64_t count, any;
    int64_t items[ITEMS];
} buffer;

static int rank, size;
static long *table;
static buffer *out, *in;
/* One for this exchange, one for the next: a process may enter it while others are in the former. */
static long syncs[2][SHMEM_ALLTOALL_SYNC_SIZE];
/* What each process adds to a sum. */
static int64_t parts[PROCESSES_MAX];

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    shmem_global_exit(1);
}

static void start(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    shmem_init();
    rank = shmem_my_pe();
    size = shmem_n_pes();
    if (size > PROCESSES_MAX)
        fail("there are too many processes");
    for (int turn = 0; turn < 2; turn++)
        for (int at = 0; at < SHMEM_ALLTOALL_SYNC_SIZE; at++)
            syncs[turn][at] = SHMEM_SYNC_VALUE;
}

static void make_table(int64_t words)
{
    table = shmem_malloc((size_t)words * sizeof *table);
    out = shmem_malloc((size_t)size * sizeof *out);
    in = shmem_malloc((size_t)size * sizeof *in);
    if (table == NULL || out == NULL || in == NULL)
        fail("there is no memory");
}

static void end(void)
{
    shmem_barrier_all();
    /* Not shmem_finalize: that of Open MPI 4.1.4 crashes where UCX has no network. */
    shmem_global_exit(0);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void word_increment(int owner, int64_t place) { shmem_long_atomic_inc(&table[place], owner); }

static void word_xor(int owner, int64_t place, int64_t with) { shmem_int64_atomic_xor((int64_t *)&table[place], with, owner); }

static int64_t word_swap(int owner, int64_t place, int64_t expected, int64_t with)
{
    return shmem_long_atomic_compare_swap(&table[place], expected, with, owner);
}

static int64_t word_fetch_add(int owner, int64_t place, int64_t by)
{
    return shmem_long_atomic_fetch_add(&table[place], by, owner);
}

static void word_put(int owner, int64_t place, int64_t word) { shmem_long_p(&table[place], word, owner); }

static void word_get(int64_t *to, int owner, int64_t place) { *to = shmem_long_g(&table[place], owner); }

static int64_t word_read(int owner, int64_t place) { return shmem_long_g(&table[place], owner); }

/* Waits until the operations of all processes are done and seen by all. */
static void all_done(void) { shmem_barrier_all(); }

static void swap(void)
{
    static int turn;
    /* No process overwrites what another one still reads. */
    shmem_barrier_all();
    shmem_alltoall64(in, out, sizeof *out / 8, 0, 0, size, syncs[turn ^= 1]);
}

/* The sum of what the first processes add. */
static int64_t sum_of_first(int count, int64_t own)
{
    shmem_barrier_all();
    for (int to = 0; to < size; to++)
        shmem_int64_p(&parts[rank], own, to);
    shmem_barrier_all();
    int64_t sum = 0;
    for (int of = 0; of < count; of++)
        sum += parts[of];
    return sum;
}

static int64_t sum_of_all(int64_t own) { return sum_of_first(size, own); }

/* The sum of the processes before this one. */
static int64_t sum_before(int64_t own) { return sum_of_first(rank, own); }
