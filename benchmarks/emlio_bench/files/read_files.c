/* An unmodified program that reads small files, one after the other: open, fstat, read, close.

   usage: read_files ROOT PROCESSES LIST...

   Each LIST has names below ROOT, one a line; process p of n reads every n-th of them, from number p on. For each list the
   program says {} when its processes are ready, begins at a line on its standard input, and says what it has read as JSON; `sum`
   is that of the first eight bytes of each file. Compiled with -DNFS it reads by libnfs, and ROOT is a URL of it. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef NFS
#include <nfsc/libnfs.h>
#endif

enum { MOST_BYTES = 64 << 20 };

struct part {
    uint64_t cpu_ns, files, bytes, sum;
};

static void fail(const char *what) {
    perror(what);
    _exit(1);
}

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#ifdef NFS

static struct nfs_context *nfs;

static void prepare(const char *root) {
    nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(nfs, root);
    if (url == NULL || nfs_mount(nfs, url->server, url->path) != 0) {
        fprintf(stderr, "%s cannot be mounted: %s\n", root, nfs_get_error(nfs));
        _exit(1);
    }
}

static char *path_of(const char *root, const char *name) {
    (void)root;
    char *path;
    return asprintf(&path, "/%s", name) < 0 ? NULL : path;
}

static size_t read_file(const char *path, char *buffer) {
    struct nfsfh *file;
    struct nfs_stat_64 status;
    if (nfs_open(nfs, path, O_RDONLY, &file) != 0 || nfs_fstat64(nfs, file, &status) != 0 || status.nfs_size > MOST_BYTES) {
        fprintf(stderr, "%s: %s\n", path, nfs_get_error(nfs));
        _exit(1);
    }
    size_t done = 0;
    while (done < status.nfs_size) {
        int got = nfs_read(nfs, file, status.nfs_size - done, buffer + done);
        if (got <= 0)
            fail(path);
        done += (size_t)got;
    }
    nfs_close(nfs, file);
    return done;
}

#else

static void prepare(const char *root) {
    (void)root;
}

static char *path_of(const char *root, const char *name) {
    char *path;
    return asprintf(&path, "%s/%s", root, name) < 0 ? NULL : path;
}

static size_t read_file(const char *path, char *buffer) {
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0 || status.st_size > MOST_BYTES)
        fail(path);
    size_t done = 0, size = (size_t)status.st_size;
    while (done < size) {
        ssize_t got = read(file, buffer + done, size - done);
        if (got <= 0)
            fail(path);
        done += (size_t)got;
    }
    close(file);
    return done;
}

#endif

static size_t load(const char *root, const char *list, char ***paths) {
    FILE *lines = fopen(list, "r");
    if (lines == NULL)
        fail(list);
    char *line = NULL;
    size_t room = 0, count = 0, most = 0;
    ssize_t length;
    *paths = NULL;
    while ((length = getline(&line, &room, lines)) > 0) {
        if (count == most) {
            most = most ? 2 * most : 1024;
            *paths = realloc(*paths, most * sizeof **paths);
        }
        line[length - 1] = 0;
        (*paths)[count++] = path_of(root, line);
    }
    free(line);
    fclose(lines);
    return count;
}

static void read_part(char **paths, size_t count, size_t first, size_t step, char *buffer, struct part *part) {
    uint64_t begun = now(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t number = first; number < count; number += step) {
        uint64_t head = 0;
        part->bytes += read_file(paths[number], buffer);
        memcpy(&head, buffer, sizeof head);
        part->sum += head;
        part->files++;
    }
    part->cpu_ns = now(CLOCK_PROCESS_CPUTIME_ID) - begun;
}

static void read_list(const char *root, size_t processes, const char *list, struct part *parts, char *buffer) {
    char **paths, *line = NULL, byte;
    size_t count = load(root, list, &paths), room = 0;
    int ready[2], go[2], status;
    if (pipe(ready) != 0 || pipe(go) != 0)
        fail("pipe");
    memset(parts, 0, processes * sizeof *parts);
    for (size_t process = 0; process < processes; process++) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child == 0) {
            close(go[1]);
            prepare(root);
            if (write(ready[1], "", 1) != 1 || read(go[0], &byte, 1) != 0)
                _exit(1);
            read_part(paths, count, process, processes, buffer, &parts[process]);
            _exit(0);
        }
    }
    close(ready[1]);
    for (size_t process = 0; process < processes; process++)
        if (read(ready[0], &byte, 1) != 1)
            _exit(1);
    puts("{}");
    fflush(stdout);
    if (getline(&line, &room, stdin) <= 0)
        exit(0);
    uint64_t begun = now(CLOCK_MONOTONIC);
    close(go[1]);
    for (size_t process = 0; process < processes; process++)
        if (wait(&status) < 0 || status != 0)
            exit(1);
    uint64_t elapsed = now(CLOCK_MONOTONIC) - begun;
    struct part all = {0};
    for (size_t process = 0; process < processes; process++) {
        all.cpu_ns += parts[process].cpu_ns;
        all.files += parts[process].files;
        all.bytes += parts[process].bytes;
        all.sum += parts[process].sum;
    }
    printf("{\"elapsed_ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 ",\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"sum\":%" PRIu64 "}\n",
           elapsed, all.cpu_ns, all.files, all.bytes, all.sum);
    fflush(stdout);
    close(ready[0]);
    close(go[0]);
}

int main(int argc, char **argv) {
    size_t processes = argc > 2 ? (size_t)atoi(argv[2]) : 0;
    if (processes < 1)
        return 2;
    void *parts = mmap(NULL, processes * sizeof(struct part), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *buffer = malloc(MOST_BYTES);
    if (parts == MAP_FAILED || buffer == NULL)
        fail("memory");
    for (int list = 3; list < argc; list++)
        read_list(argv[1], processes, argv[list], parts, buffer);
    return 0;
}
