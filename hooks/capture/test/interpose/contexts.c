// contexts.c - what a context is said to take, by what NVML says of the card before and after
// it is made, and whoever else is there.
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>

#include "nvml.h"

enum { UNKNOWN_ERROR = 999, CROWD = 300 };

static const unsigned long long NOT_REPORTED = ~0ull;
static const char *const OURS = "what=context", *const DEVICES = "what=context\thow=device";
static const char *const SHARED = "what=context\thow=device\tothers=1";

static void *nvml(const char *folder) {
  static char path[600];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
  CHECK(length > 0);
  path[length] = '\0';
  sprintf(strrchr(path, '/'), "/%s/libnvidia-ml.so.1", folder);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  return library;
}

// Makes the process's first context in the scene: the bytes it is said to take, how, and how
// many readings NVML is asked for, which is left as it was found unless it lists this process.
static void check_in(const char *folder, const struct nvml_scene *scene, uint64_t bytes, const char *context, int readings) {
  void *library = nvml(folder), *ptr = NULL;
  void (*play)(const struct nvml_scene *) = (void (*)(const struct nvml_scene *))dlsym(library, "nvml_play");
  int (*users)(void) = (int (*)(void))dlsym(library, "nvml_users"), (*asked)(void) = (int (*)(void))dlsym(library, "nvml_asked");
  play(scene);
  start();
  CHECK(cudaMalloc(&ptr, MiB) == 0);  // so that there is an event in any case
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_OVERHEAD), bytes != 0);
  if (bytes != 0) {
    const struct memprof_record *event = trail_event(&trail, MEMPROF_OVERHEAD, 0);
    CHECK_EQUAL(event->device, 0);
    CHECK_EQUAL(event->provided, bytes);
    CHECK_CONTEXT(&trail, event, context);
  }
  CHECK_EQUAL(users(), context == OURS);
  CHECK_EQUAL(asked(), readings);
}

static void check_scene(const struct nvml_scene *scene, uint64_t bytes, const char *context, int readings) {
  check_in("nvml", scene, bytes, context, readings);
}

// Another process takes 3 GiB while our context of 400 MiB is made.
static struct nvml_scene disturbed(void) {
  static struct nvml_entry before[1], after[2];
  before[0] = (struct nvml_entry){1, GiB, -1, -1};
  after[0] = (struct nvml_entry){1, 4 * GiB, -1, -1};
  after[1] = (struct nvml_entry){(unsigned)getpid(), 400 * MiB, -1, -1};
  return (struct nvml_scene){.used = {5 * GiB, 8 * GiB + 400 * MiB}, .listed = {before, after}, .count = {1, 2}};
}

TEST(others_take_within_the_window) {
  const struct nvml_scene scene = disturbed();
  check_scene(&scene, 400 * MiB, OURS, 3);
}

// Or frees it: the device's use shrinks.
TEST(others_give_within_the_window) {
  struct nvml_scene scene = disturbed();
  scene.used[1] = 2 * GiB + 400 * MiB;
  check_scene(&scene, 400 * MiB, OURS, 3);
}

TEST(the_list_s_second_version) {
  const struct nvml_scene scene = disturbed();
  check_in("nvml-second", &scene, 400 * MiB, OURS, 3);
}

// On a card in parts a process is listed for each.
TEST(parts_of_a_card) {
  struct nvml_scene scene = disturbed();
  const unsigned ours = (unsigned)getpid();
  const struct nvml_entry before[] = {{ours, 100 * MiB, 1, 0}}, after[] = {{ours, 100 * MiB, 1, 0}, {1, GiB, 2, 0}, {ours, 300 * MiB, 2, 0}};
  scene.listed[0] = before, scene.listed[1] = after, scene.count[1] = 3;
  check_scene(&scene, 300 * MiB, OURS, 3);
}

// In a container that hides processes, or lists them by their ids outside of it.
TEST(not_listed) {
  struct nvml_scene scene = disturbed();
  scene.count[1] = 1;
  check_scene(&scene, 3 * GiB + 400 * MiB, SHARED, 4);
}

// Our id is another process's, outside of the container.
TEST(listed_is_another) {
  struct nvml_scene scene = disturbed();
  const struct nvml_entry stranger = {(unsigned)getpid(), 2 * GiB, -1, -1};
  scene.listed[0] = scene.listed[1] = &stranger, scene.count[1] = 1;
  check_scene(&scene, 3 * GiB + 400 * MiB, DEVICES, 4);
}

TEST(not_known) {
  struct nvml_scene scene = disturbed();
  const unsigned ours = (unsigned)getpid();
  const struct nvml_entry after[] = {{ours, NOT_REPORTED, 1, 0}, {ours, 300 * MiB, 2, 0}};
  scene.listed[1] = after;
  check_scene(&scene, 3 * GiB + 400 * MiB, DEVICES, 4);
}

// More processes than are asked for, us among them. A list too long is not asked for again.
TEST(too_many_to_list) {
  static struct nvml_entry crowd[CROWD];
  struct nvml_scene scene = disturbed();
  for (unsigned i = 0; i < CROWD; i++) crowd[i] = (struct nvml_entry){(unsigned)getpid(), i * MiB, -1, -1};
  scene.listed[0] = scene.listed[1] = crowd, scene.count[0] = scene.count[1] = CROWD;
  check_scene(&scene, 3 * GiB + 400 * MiB, DEVICES, 3);
}

TEST(no_list) {
  struct nvml_scene scene = disturbed();
  scene.error = UNKNOWN_ERROR;
  check_scene(&scene, 3 * GiB + 400 * MiB, DEVICES, 3);
}

// As many as are asked for, in longer entries.
TEST(wide_entries) {
  static struct nvml_entry crowd[256];
  struct nvml_scene scene = disturbed();
  crowd[0] = scene.listed[1][1];
  for (unsigned i = 1; i < 256; i++) crowd[i] = (struct nvml_entry){1, MiB, -1, -1};
  scene.listed[1] = crowd, scene.count[1] = 256, scene.wide = true;
  check_scene(&scene, 400 * MiB, OURS, 3);
}

// No context takes nothing, or less.
TEST(nothing_grew) {
  struct nvml_scene scene = disturbed();
  scene.used[1] = 2 * GiB, scene.count[1] = 1;
  check_scene(&scene, 0, NULL, 4);
}

// Another process that takes and returns memory of the card all the time, until `ended`
// is set. The simulated card is this process's own, so it is a thread, and what it has is kept out
// of what NVML lists for us.
static pthread_mutex_t others = PTHREAD_MUTEX_INITIALIZER;
static int64_t others_have;
static _Atomic int turns;
static _Atomic bool ended;

static void *unseen(const char *name) {
  typedef void *lookup(void *, const char *);
  lookup *find = (lookup *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (find == NULL) find = (lookup *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  CHECK(find != NULL);
  return find(dlopen("libcuda.so.1", RTLD_NOW), name);
}

static unsigned long long our_use(void) {
  int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))unseen("cuMemGetInfo_v2");
  int (*retain)(void **, int) = (int (*)(void **, int))unseen("cuDevicePrimaryCtxRetain");
  int (*current)(void *) = (int (*)(void *))unseen("cuCtxSetCurrent");
  size_t free_bytes = 0, total = 0;
  void *context;
  CHECK(retain(&context, 0) == 0 && current(context) == 0);
  pthread_mutex_lock(&others);
  CHECK(info(&free_bytes, &total) == 0);
  const int64_t ours = (int64_t)(total - free_bytes) - others_have;
  pthread_mutex_unlock(&others);
  return (unsigned long long)ours;
}

static void *be_restless(void *context) {
  int (*allocate)(device_address *, size_t) = (int (*)(device_address *, size_t))unseen("cuMemAlloc_v2");
  int (*release)(device_address) = (int (*)(device_address))unseen("cuMemFree_v2");
  int (*current)(void *) = (int (*)(void *))unseen("cuCtxSetCurrent");
  current(context);
  for (device_address addr = 0; !atomic_load(&ended) || addr != 0; atomic_fetch_add(&turns, 1)) {
    pthread_mutex_lock(&others);
    CHECK((addr == 0 ? allocate(&addr, 64 * MiB) : release(addr)) == 0);
    if (others_have != 0) addr = 0;
    others_have = 64 * (int64_t)MiB - others_have;
    pthread_mutex_unlock(&others);
    usleep(20);
  }
  return NULL;
}

// Modules are measured by this process's own use once NVML lists it: beside a restless process
// each takes what it takes.
TEST(modules_beside_others, "MEMPROF_SIM_MEMORY", "64g", "MEMPROF_SIM_CONTEXT", "300m") {
  struct nvml_scene scene = {.live = our_use};
  void *library = nvml("nvml"), *context, *module;
  pthread_t restless;
  uint64_t loaded = 0;
  void (*play)(const struct nvml_scene *) = (void (*)(const struct nvml_scene *))dlsym(library, "nvml_play");
  play(&scene);
  CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
  CHECK_EQUAL(overhead(0, OURS), 300 * MiB);
  CHECK(pthread_create(&restless, NULL, be_restless, context) == 0);
  for (; atomic_load(&turns) < 200 || loaded < 20; loaded++) {
    CHECK(cuModuleLoadData(&module, "simcuda:2097152") == 0);
    if (loaded >= 20) usleep(1000);  // for the other thread: the card has no room for all that a busy machine could load meanwhile
  }
  atomic_store(&ended, true);
  pthread_join(restless, NULL);
  static char context_text[700];
  snprintf(context_text, sizeof context_text, "%s\thow=process", named("module"));
  CHECK_EQUAL(overheads(), 1 + loaded);
  for (uint64_t i = 1; i <= loaded; i++) CHECK_EQUAL(overhead(i, context_text), 2 * MiB);
}

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
