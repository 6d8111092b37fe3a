package nodeapi

// Version of Headstart. Releases set it at link time.
var Version = "0.1.0-dev"
