package kube

// Why a request gets no instance, or what an operator asked for is not done. Those of pods
// that do not come up are in package object, those of Services in package catalog.
const (
	reasonFunctionUnknown       = "FunctionUnknown"
	reasonNoInstance            = "NoInstance"
	reasonNodeUnavailable       = "NodeUnavailable"
	reasonNodeNotAllowed        = "NodeNotAllowed"
	reasonScaledByAnother       = "ScaledByAnother"
	reasonPodRefused            = "PodRefused"
	reasonUnschedulable         = "Unschedulable"
	reasonActivationTimeout     = "ActivationTimeout"
	reasonScaleUpForbidden      = "ScaleUpForbidden"
	reasonPlatformUnavailable   = "PlatformUnavailable"
	reasonScaleToZeroNotAllowed = "ScaleToZeroNotAllowed"
	reasonScaleToZeroFailed     = "ScaleToZeroFailed"
)
