package nodeapi

// VolumeLabels is the field manager (server-side apply) of the labels that nodes have for the volumes that they keep, and of
// no other field. The control plane writes them, and the installer takes them off in the end.
const VolumeLabels = "headstart-volumes"
