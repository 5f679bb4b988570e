/* What irregular.c needs, for MPI: one-sided operations, and MPI_Alltoall. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "openmpi"

enum { ITEMS = 1024 };

/* Items for one process, and whether the sender has any for some process. */
typedef struct {
    int64_t count, any;
    int64_t items[ITEMS];
} buffer;

static int rank, size;
static int64_t *table;
static buffer *out, *in;
static MPI_Win window;

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void start(int *count, char ***arguments)
{
    MPI_Init(count, arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static void make_table(int64_t words)
{
    MPI_Win_allocate(words * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &table, &window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    out = calloc((size_t)size, sizeof *out);
    in = calloc((size_t)size, sizeof *in);
    if (out == NULL || in == NULL)
        fail("there is no memory");
}

static void end(void)
{
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    exit(0);
}

static double now(void) { return MPI_Wtime(); }

static void word_increment(int owner, int64_t place)
{
    static const int64_t one = 1;
    MPI_Accumulate(&one, 1, MPI_INT64_T, owner, place, 1, MPI_INT64_T, MPI_SUM, window);
}

/* A number that stays until the operation that takes it is done. */
static const int64_t *kept(int64_t number)
{
    static int64_t numbers[1024];
    static int count;
    if (count == 1024) {
        MPI_Win_flush_all(window);
        count = 0;
    }
    numbers[count] = number;
    return &numbers[count++];
}

static void word_xor(int owner, int64_t place, int64_t with)
{
    MPI_Accumulate(kept(with), 1, MPI_INT64_T, owner, place, 1, MPI_INT64_T, MPI_BXOR, window);
}

static int64_t word_fetch_add(int owner, int64_t place, int64_t by)
{
    int64_t found;
    MPI_Fetch_and_op(&by, &found, MPI_INT64_T, owner, place, MPI_SUM, window);
    MPI_Win_flush(owner, window);
    return found;
}

static int64_t word_swap(int owner, int64_t place, int64_t expected, int64_t with)
{
    int64_t found;
    MPI_Compare_and_swap(&with, &expected, &found, MPI_INT64_T, owner, place, window);
    MPI_Win_flush(owner, window);
    return found;
}

static void word_put(int owner, int64_t place, int64_t word)
{
    MPI_Put(kept(word), 1, MPI_INT64_T, owner, place, 1, MPI_INT64_T, window);
}

/* The word is there after `all_done`. */
static void word_get(int64_t *to, int owner, int64_t place)
{
    MPI_Get(to, 1, MPI_INT64_T, owner, place, 1, MPI_INT64_T, window);
}

/* Reads a word now. */
static int64_t word_read(int owner, int64_t place)
{
    int64_t word;
    word_get(&word, owner, place);
    MPI_Win_flush(owner, window);
    return word;
}

/* Waits until the operations of all processes are done and seen by all. */
static void all_done(void)
{
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
}

static void swap(void) { MPI_Alltoall(out, sizeof *out, MPI_BYTE, in, sizeof *in, MPI_BYTE, MPI_COMM_WORLD); }

static int64_t sum_of_all(int64_t own)
{
    int64_t sum;
    MPI_Allreduce(&own, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* The sum of the processes before this one. */
static int64_t sum_before(int64_t own)
{
    int64_t sum;
    MPI_Scan(&own, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum - own;
}
