package filterapi

// AnnotationPrefix is the domain of Headstart's annotations.
const AnnotationPrefix = "headstart.dev/"

// The keys of the annotations, by which errors name them on all sides. What they mean and which
// values they take is in the control plane's table (control-plane/policy).
const (
	AnnotationInput = AnnotationPrefix + "input"
	// AnnotationNamed begins the keys of inputs with names.
	AnnotationNamed        = AnnotationInput + "."
	AnnotationPath         = AnnotationPrefix + "path"
	AnnotationStore        = AnnotationPrefix + "store"
	AnnotationInputLimit   = AnnotationPrefix + "input-limit"
	AnnotationScaleToZero  = AnnotationPrefix + "scale-to-zero"
	AnnotationReadyTimeout = AnnotationPrefix + "ready-timeout"
	AnnotationTrigger      = AnnotationPrefix + "trigger"
	AnnotationTriggerStore = AnnotationPrefix + "trigger-store"
	AnnotationTriggerTries = AnnotationPrefix + "trigger-tries"
	AnnotationCallers      = AnnotationPrefix + "callers"
	AnnotationRouting      = AnnotationPrefix + "routing"
	AnnotationMode         = AnnotationPrefix + "mode"
	// AnnotationWorkflow is of a Service that has a workflow in the place of pods.
	AnnotationWorkflow = AnnotationPrefix + "workflow"
	// ReadBySocket is the value of AnnotationReadBy of a job whose program needs no file.
	AnnotationReadBy = AnnotationPrefix + "read-by"
	ReadBySocket     = "socket"
	// AnnotationVolumes and those after it are of pods only. LateStart is the value of a pod whose containers
	// start without volumes that are late.
	AnnotationVolumes     = AnnotationPrefix + "volumes"
	AnnotationVolumesWait = AnnotationPrefix + "volumes-wait"
	AnnotationVolumesLate = AnnotationPrefix + "volumes-late"
	LateStart             = "start"
	// AnnotationS3 is of pods only.
	AnnotationS3          = AnnotationPrefix + "s3"
	AnnotationS3Learn     = AnnotationPrefix + "s3-learn"
	AnnotationSpeculation = AnnotationPrefix + "speculation"
	// AnnotationState names the destination that has what a workflow's runs have come to.
	AnnotationState = AnnotationPrefix + "state"
	// AnnotationConnections and that after it are of pods only.
	AnnotationConnections   = AnnotationPrefix + "connections"
	AnnotationConnectionsBy = AnnotationPrefix + "connections-by"
	BySocket                = "socket"
	ByDescriptor            = "descriptor"
	ByConnect               = "connect"
)

// InputKey is the key of the input with that name; the unnamed one's is AnnotationInput.
func InputKey(name string) string {
	if name == "" {
		return AnnotationInput
	}
	return AnnotationNamed + name
}
