/* A driver for tests: answers what the environment says, so that a machine without a GPU can be any machine. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int number(const char* name, int otherwise) {
    const char* text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) {
    (void)flags;
    if (number("FAKE_HANGS", 0)) pause();
    if (number("FAKE_CRASHES", 0)) abort();
    return number("FAKE_CUINIT", 0);
}

int cuDriverGetVersion(int* version) {
    *version = number("FAKE_CUDA", 13000);
    return 0;
}

int cuDeviceGetCount(int* count) {
    *count = number("FAKE_GPUS", 1);
    return 0;
}

int cuDeviceGetName(char* name, int room, int device) {
    snprintf(name, (size_t)room, "Test GPU %d", device);
    return 0;
}
