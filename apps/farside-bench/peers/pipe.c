/* One message from rank 0 to rank 1 and one back, by each of MPI's ways: what one of the two takes.
 *
 * usage: pipe BYTES TRIPS RUNS MODE       MODE is write or read
 *
 * write: messages (send); put and a fence (fence); put and post-start-complete-wait (pscw); put, flush and a flag that is looked at, with the
 * window locked once (passive). The receiver looks at the last byte of what came.
 * read: the one who has the data says so, and the other gets it. Messages (send) are the same as in writes.
 */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, peer, bytes;
static char *data, *mine;
static uint64_t *flag;
static MPI_Win window;
static MPI_Aint flag_place;
static MPI_Group group;
static uint64_t number;

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Messages carry their number in the first and the last byte. */
static void stamp(char *at) { at[0] = at[bytes - 1] = (char)number; }
static void check(const char *at)
{
    if (at[0] != (char)number || at[bytes - 1] != (char)number)
        fail("a message is not there when it should be");
}

static void tell(void)
{
    static uint64_t told;
    told = number;
    MPI_Accumulate(&told, 1, MPI_UINT64_T, peer, flag_place, 1, MPI_UINT64_T, MPI_REPLACE, window);
    MPI_Win_flush(peer, window);
}

static void hear(void)
{
    /* The peer may have told the next one already. */
    while (*(volatile uint64_t *)flag < number)
        MPI_Win_sync(window);
    MPI_Win_sync(window);
}

static void write_send(int sends)
{
    if (sends) {
        stamp(data);
        MPI_Send(data, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(data, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(data);
    }
}

static void write_fence(int sends)
{
    if (sends) {
        stamp(data);
        MPI_Put(data, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
    }
    MPI_Win_fence(0, window);
    if (!sends)
        check(mine);
}

static void write_pscw(int sends)
{
    if (sends) {
        stamp(data);
        MPI_Win_start(group, 0, window);
        MPI_Put(data, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
        MPI_Win_complete(window);
    } else {
        MPI_Win_post(group, 0, window);
        MPI_Win_wait(window);
        check(mine);
    }
}

static void write_passive(int sends)
{
    if (sends) {
        stamp(data);
        MPI_Put(data, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
        MPI_Win_flush(peer, window);
        tell();
    } else {
        hear();
        check(mine);
    }
}

/* In reads the sender has the data in its own memory. */
static void read_fence(int sends)
{
    if (sends)
        stamp(mine);
    MPI_Win_fence(0, window);
    if (!sends)
        MPI_Get(data, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    if (!sends)
        check(data);
}

static void read_pscw(int sends)
{
    if (sends) {
        stamp(mine);
        MPI_Win_post(group, 0, window);
        MPI_Win_wait(window);
    } else {
        MPI_Win_start(group, 0, window);
        MPI_Get(data, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
        MPI_Win_complete(window);
        check(data);
    }
}

/* Ready, fetch, taken. */
static void read_passive(int sends)
{
    if (sends) {
        stamp(mine);
        MPI_Win_sync(window);
        tell();
        hear();
    } else {
        hear();
        MPI_Get(data, bytes, MPI_BYTE, peer, 0, bytes, MPI_BYTE, window);
        MPI_Win_flush(peer, window);
        check(data);
        tell();
    }
}

static int at_least_one(const char *text)
{
    int value = atoi(text);
    if (value < 1)
        fail("a number is not at least 1");
    return value;
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    int size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count != 5 || size != 2)
        fail("usage: pipe BYTES TRIPS RUNS write|read, for two processes");
    peer = 1 - rank;
    bytes = at_least_one(arguments[1]);
    int trips = at_least_one(arguments[2]), runs = at_least_one(arguments[3]);
    int reads = strcmp(arguments[4], "read") == 0;

    /* The flag has lines to itself. */
    flag_place = (bytes + 255) / 256 * 256;
    MPI_Win_allocate(flag_place + 256, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
    memset(mine, 0, (size_t)flag_place + 256);
    flag = (uint64_t *)(void *)(mine + flag_place);
    data = aligned_alloc(4096, ((size_t)bytes + 4095) / 4096 * 4096);
    if (data == NULL)
        fail("there is no memory");
    memset(data, 1, (size_t)bytes);
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &peer, &group);
    MPI_Barrier(MPI_COMM_WORLD);

    struct {
        const char *name;
        void (*write)(int), (*read)(int);
    } ways[] = {
        {"openmpi-send", write_send, write_send},
        {"openmpi-fence", write_fence, read_fence},
        {"openmpi-pscw", write_pscw, read_pscw},
        {"openmpi-passive", write_passive, read_passive},
    };
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        void (*move)(int) = reads ? ways[way].read : ways[way].write;
        int is_passive = move == write_passive || move == read_passive;
        int is_fence = move == write_fence || move == read_fence;
        if (is_passive)
            MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
        if (is_fence)
            MPI_Win_fence(0, window);
        /* The first run is for connections to be made. */
        for (int run = 0; run <= runs; run++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            for (int trip = 0; trip < trips; trip++) {
                number++;
                move(rank == 0);
                number++;
                move(rank == 1);
            }
            double taken = (MPI_Wtime() - start) / trips / 2 * 1e9;
            if (rank == 0 && run > 0)
                printf("%s ns ns %.2f\n", ways[way].name, taken);
        }
        if (is_fence)
            MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
        if (is_passive)
            MPI_Win_unlock_all(window);
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
