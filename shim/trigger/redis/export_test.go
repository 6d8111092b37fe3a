package redis

// Bound has a client's connections bounded, as those of a Server are.
var Bound = bound

// Lingering is how long a consumer that is gone stays at least.
const Lingering = lingering
