package nodeapi

// Version of Headstart. Releases set it at link time.
var Version = "0.1.0-dev"

// ContainerdNamespace is the containerd namespace of all instances and their images.
const ContainerdNamespace = "headstart"
