package redis

// Lingering is how long a consumer that is gone stays at least.
const Lingering = lingering
