/* Runs a workload; see irregular.c. */
typedef struct {
    const char *name;
    /* Returns how many words of the table each process needs. */
    int64_t (*prepare)(void);
    void (*begin)(void), (*agp)(void), (*exchange)(void), (*check)(void);
} workload;

static const workload workloads[] = {
    {"histo", prepare_words, histo_begin, histo_agp, histo_exchange, histo_check},
    {"ig", prepare_words, ig_begin, ig_agp, ig_exchange, ig_check},
    {"gups", gups_prepare, gups_begin, gups_agp, gups_exchange, gups_check},
    {"randperm", randperm_prepare, randperm_begin, randperm_agp, randperm_exchange, randperm_check},
    {"toposort", toposort_prepare, toposort_begin, toposort_agp, toposort_exchange, toposort_check},
    {"triangles", triangles_prepare, triangles_begin, triangles_agp, triangles_exchange, triangles_check},
    {"bfs", bfs_prepare, bfs_begin, bfs_agp, bfs_exchange, bfs_check},
    {"kmers", kmers_prepare, kmers_begin, kmers_agp, kmers_exchange, kmers_check},
};

int main(int count, char **arguments)
{
    start(&count, &arguments);
    const workload *chosen = NULL;
    for (size_t at = 0; count == 6 && at < sizeof workloads / sizeof *workloads; at++)
        if (strcmp(arguments[1], workloads[at].name) == 0)
            chosen = &workloads[at];
    if (chosen == NULL)
        fail("usage: irregular WORKLOAD agp|exchange FIRST SECOND RUNS, where WORKLOAD is one of irregular.c");
    int by_word = strcmp(arguments[2], "agp") == 0, runs = atoi(arguments[5]);
    first = atoll(arguments[3]), second = atoll(arguments[4]);
    if (first < 1 || second < 1 || runs < 1)
        fail("a number is not at least 1");
    operations = first;
    make_table(chosen->prepare());
    /* The first run touches the memory. */
    for (int run = 0; run <= runs; run++) {
        chosen->begin();
        all_done();
        double begun = now();
        (by_word ? chosen->agp : chosen->exchange)();
        all_done();
        double seconds = now() - begun;
        chosen->check();
        all_done();
        if (rank == 0 && run > 0)
            printf("%s items_per_s 1/s %.6g\n", LIBRARY, (double)operations / seconds);
    }
    fflush(stdout);
    end();
}
