/* Memory of the processes of an MPI job: when it has begun, and when each has sent to each, once and often.
 *
 * One job is one run: the memory is not given back.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const PEER = "openmpi";
/* Messages to each, once each has sent one to each. */
static const int TALK = 64;

/* This process's memory, pages counted by its share of those who have them mapped, without the program and other files. */
static double data_bytes(void)
{
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    if (rollup == NULL) {
        perror("/proc/self/smaps_rollup");
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 0;
    }
    char line[256];
    double kib = 0;
    while (fgets(line, sizeof line, rollup) != NULL) {
        double value;
        if (sscanf(line, "Pss_Anon: %lf", &value) == 1 || sscanf(line, "Pss_Shmem: %lf", &value) == 1)
            kib += value;
    }
    fclose(rollup);
    return kib * 1024;
}

/* The mean over all processes, by rank 0. */
static void report(const char *metric, double own, int rank, int size)
{
    double sum = 0;
    MPI_Reduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s %s B %.0f\n", PEER, metric, sum / size);
}

/* In each round everybody sends to one and receives from another. */
static void send_to_each(int messages, int rank, int size)
{
    for (int distance = 1; distance < size; distance++) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size;
        for (int message = 0; message < messages; message++) {
            int sent = rank, received = -1;
            MPI_Sendrecv(&sent, 1, MPI_INT, to, 0, &received, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (received != from) {
                fprintf(stderr, "%d came instead of %d\n", received, from);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double started = data_bytes();

    send_to_each(1, rank, size);
    double sent = data_bytes();
    send_to_each(TALK, rank, size);
    double talked = data_bytes();

    report("start_bytes", started, rank, size);
    report("called_bytes", sent, rank, size);
    report("talked_bytes", talked, rank, size);
    MPI_Finalize();
    return 0;
}
