// Package trust is what an attacker gets: nothing. It lists the tests that play one, runs them, and says
// how many attacks were won.
package trust

// Role is the part that an attacker has taken over, or is.
type Role string

// Roles, from outside to inside.
const (
	Client           Role = "client"
	RouteAuthor      Role = "route author"      // writes VirtualServices, HTTPRoutes, ServiceEntries
	AnnotationAuthor Role = "annotation author" // writes Services, Knative Services and pods
	Function         Role = "function"
	Gateway          Role = "gateway"
	Node             Role = "node"
	Daemon           Role = "daemon"
	ControlPlane     Role = "control plane"
	Store            Role = "store"
	Redis            Role = "Redis"
)

// Roles has them all.
var Roles = []Role{Client, RouteAuthor, AnnotationAuthor, Function, Gateway, Node, Daemon, ControlPlane, Store, Redis}

// Asset is what the attacker must not get.
type Asset string

// Assets of others than the attacker.
const (
	Speech      Asset = "speaking as the gateway"     // a request for a function that the gateway did not choose
	Calls       Asset = "another's function"          // being answered by a function that does not allow it
	Inputs      Asset = "another's input"             // reading what another request or version has
	Objects     Asset = "objects of the store"        // those that the function's template or store does not allow
	Requests    Asset = "another's request"           // its delivery, and its answer
	Credentials Asset = "credentials"                 // of stores and daemons
	Identity    Asset = "another's identity"          // a node's, the control plane's, a workload's
	Rights      Asset = "rights in the cluster"       //
	Host        Asset = "the node"                    // its files and its processes
	Traffic     Asset = "the choice of instances"     // requests that should go elsewhere
	Settings    Asset = "the gateway's configuration" //
	Room        Asset = "room for others"             // memory, disk, connections, requests held
	Record      Asset = "the operator's record"       // events, logs, traces, the terminal
)

// Tag is what a test is built with.
type Tag string

// Tags: tests without one need neither root nor other programs.
const (
	Integration Tag = "integration"
	Cluster     Tag = "cluster"
)

// Attack is a test that plays one role against one asset.
type Attack struct {
	Role    Role
	Asset   Asset
	Package string // below the module
	Test    string // TestX, or TestX/subtest
	Tag     Tag
}

// Attacks are all of them. A test that plays several roles has several rows.
var Attacks = []Attack{
	{Client, Speech, "e2e/gateway", "TestClientHeaders", Integration},
	{Client, Speech, "e2e/local", "TestClientsCannotSpeakForTheGateway", Integration},
	{Client, Speech, "shim/ingress", "TestNoRequestIsHiddenInABody", ""},
	{Client, Speech, "shim/ingress", "TestNoTrailerIsOurs", ""},
	{Client, Speech, "shim/ingress", "TestOnlyWebSocketsPass", ""},
	{Client, Speech, "shim/ingress", "TestInternalHeadersStayInside", ""},
	{Client, Speech, "shim/ingress", "TestOnlyPeersSayTheProtocol", ""},
	{Client, Speech, "e2e/gateway", "TestRequestRefused", Integration},
	{Client, Requests, "e2e/smuggling", "TestFunctionsGetWhatEnvoyHasUnderstood", Integration},
	{Client, Requests, "e2e/smuggling", "TestOddRequests", Integration},
	{Client, Requests, "e2e/smuggling", "FuzzEnvoyAndDaemon", Integration},
	{Client, Requests, "e2e/smuggling", "FuzzDaemon", Integration},
	{Client, Requests, "shim/ingress", "TestADuplicateIsRefused", ""},
	{Client, Objects, "filters/prefetch", "TestMalformedReferenceIsAnsweredWithAProblem", ""},
	{Client, Credentials, "e2e/local", "TestNoSecretIsTold", Integration},
	{Client, Room, "e2e/gateway", "TestHeadersTooLarge", Integration},
	{Client, Room, "shim/ingress", "TestABodyThatIsTooLarge", ""},
	{Client, Record, "control-plane/trace", "TestWaterfallFitsTheTerminalWhateverTheSpansSay", ""},
	{Client, Record, "control-plane/trace", "TestAttackReadsTokensOfQueriesInTraces", ""},
	{Client, Record, "shim/ingress", "TestAttackStrangerReadsTheOperatorsDetails", ""},
	{Client, Inputs, "e2e/functions/handoff", "TestAttackHeaderNamesAFileElsewhere", ""},
	{Client, Room, "shim/nodeapi/serve", "TestAttackManyConnections", ""},
	{Client, Room, "shim/nodeapi/serve", "TestAttackHugeHead", ""},
	{Client, Room, "e2e/gateway", "TestAttackClientOpensConnections", Integration},
	{Client, Room, "shim/ingress", "TestAttackRequestsOfANamespaceLeaveOthersRoom", ""},
	{Client, Room, "shim/ingress", "TestAttackHintsOfANamespaceLeaveOthersTheirs", ""},
	{Client, Room, "shim/objects", "TestAttackInputsOfANamespaceLeaveOthersRoom", ""},

	{RouteAuthor, Speech, "e2e/relay", "TestARouteCannotSpeakForAFunction", Integration},
	{RouteAuthor, Speech, "e2e/cluster/meshtest", "TestARouteDoesNotSpeakForAFunction", Cluster},
	{RouteAuthor, Speech, "shim/ingress", "TestARequestWithoutItsFunctionsKey", ""},
	{RouteAuthor, Speech, "shim/gatekey", "TestAKeyIsOneFunctionsOnOneNode", ""},
	{RouteAuthor, Speech, "shim/gatekey", "TestRequestsWithoutAKey", ""},
	{RouteAuthor, Speech, "control-plane/admission", "TestRoutesThatSpeakAsAGateway", ""},
	{RouteAuthor, Settings, "control-plane/admission", "TestEntriesThatLeadToSockets", ""},
	{RouteAuthor, Settings, "shim/relay", "TestAttackAStreamWithoutTheGatewaysKey", ""},
	{RouteAuthor, Settings, "shim/gatekey", "TestGatewaysHaveAKeyOfTheirOwn", ""},
	{RouteAuthor, Settings, "e2e/relay", "TestAttackARouteAsksAsTheGateway", Integration},
	{RouteAuthor, Speech, "e2e/relay", "TestAttackARouteHints", Integration},
	{RouteAuthor, Speech, "shim/ingress", "TestAttackARouteHints", ""},
	{RouteAuthor, Objects, "shim/ingress", "TestARouteCannotNameAnInput", ""},
	{RouteAuthor, Identity, "shim/ingress", "TestAttackARouteClaimsACaller", ""},

	{AnnotationAuthor, Objects, "control-plane/admission", "TestStoresAreGrantedToNamespaces", ""},
	{AnnotationAuthor, Objects, "control-plane/admission", "TestWithoutStoresNoInputIsAllowed", ""},
	{AnnotationAuthor, Objects, "control-plane/knative", "TestStoresCountForTheirNamespacesOnly", ""},
	{AnnotationAuthor, Objects, "control-plane/platform/kube", "TestAJobWithWrongAnnotationsIsRefused", ""},
	{AnnotationAuthor, Objects, "shim/objects/source/s3", "TestFetchStaysInItsBuckets", ""},
	{AnnotationAuthor, Host, "shim/runtime/spec", "TestAttackOfTheAnnotationAuthorOnOtherMounts", ""},
	{AnnotationAuthor, Host, "shim/staging", "TestNamesLeadNowhereElse", ""},
	{AnnotationAuthor, Host, "shim/sandboxes", "TestPodsThatAreRefused", ""},
	{AnnotationAuthor, Room, "control-plane/admission", "TestTheAPIServerSurvivesHugeValues", Cluster},
	{AnnotationAuthor, Room, "shim/sandboxes", "TestContainersAreLimited", ""},
	{AnnotationAuthor, Room, "control-plane/istio", "TestAttackManyServicesDoNotGrowOneObject", ""},
	{AnnotationAuthor, Room, "filters/prefetch", "TestAttackManyFunctionsDoNotGrowTheFilter", ""},
	{AnnotationAuthor, Room, "control-plane/nodes", "TestAttackManyFunctionsFitTheNodesMessages", ""},
	{AnnotationAuthor, Room, "control-plane/nodes", "TestAttackManyInstancesAndTriggersFitTheNodesMessages", ""},
	{AnnotationAuthor, Room, "control-plane/platform/kube/catalog", "TestAttackANamespaceTakesNoMoreThanItsFunctions", ""},
	{AnnotationAuthor, Room, "control-plane/platform/kube/catalog", "TestAttackANamespaceTakesNoMoreThanItsAnnotations", ""},
	{AnnotationAuthor, Room, "control-plane/platform/kube", "TestAttackOneNamespacesServicesLeaveOthersWorking", ""},
	{AnnotationAuthor, Room, "shim/uplink", "TestAttackManyFunctionsFitTheDaemonsMemory", ""},
	{AnnotationAuthor, Room, "e2e/replicas", "TestAttackManyFunctionsFitTheDaemon", Integration},
	{AnnotationAuthor, Record, "control-plane/event", "TestFunctionsCannotFillTheLog", ""},

	{Function, Inputs, "shim/functionapi", "TestAnotherSandboxCannotReadIt", ""},
	{Function, Calls, "shim/functionapi", "TestCallsThatAreRefused", ""},
	{Function, Speech, "shim/functionapi", "TestACallSaysWhatAGatewayWould", ""},
	{Function, Requests, "shim/ingress", "TestAFunctionCannotHandBack", ""},
	{Function, Requests, "shim/ingress", "FuzzAnswers", ""},
	{Function, Traffic, "shim/ingress", "TestLoadsThatProgramsReport", ""},
	{Function, Host, "shim/sandboxes", "TestLinksOutOfTheTree", ""},
	{Function, Requests, "shim/nodeapi/streams", "TestAttackOfOthersInTheNetwork", Integration},
	{Function, Requests, "shim/nodeapi/streams", "TestAttackOfTheListener", ""},
	{Function, Room, "shim/nodeapi/streams", "TestAttackOfTheShimByEnds", ""},
	{Function, Room, "shim/runtime/notify", "TestAttackAProgramConnectsInALoop", Integration},
	{Function, Room, "shim/objects", "TestAttackKeptFilesAreOpenedAgain", ""},
	{Function, Room, "shim/objects", "TestAttackAQuestionOfAStarvedNamespace", ""},
	{Function, Room, "shim/functionapi", "TestTooManyCalls", ""},
	{Function, Room, "shim/functionapi", "TestCallsHaveAnEndForLiars", ""},
	{Function, Room, "shim/functionapi", "TestTooManyReads", ""},
	{Function, Room, "shim/functionapi", "TestAReadThatNobodyTakes", ""},
	{Function, Room, "shim/objects/buffer", "TestQuota", ""},
	{Function, Record, "control-plane/event", "TestAFunctionCannotFillTheLog", ""},
	{Function, Record, "control-plane/trace", "TestAttackSpansWithoutACertificate", ""},
	{Function, Identity, "shim/functionapi", "TestAttackAFunctionClaimsToBeAnother", ""},
	{Function, Objects, "shim/objects", "TestAttackAnotherNamespaceSeesNoFetch", ""},
	{Function, Objects, "shim/objects", "TestAttackAnotherNamespaceSeesNothingKept", ""},
	{Function, Objects, "shim/objects/source/redis", "TestAttackAnotherNamespaceSeesNoWatch", ""},
	{Function, Room, "shim/objects/buffer", "TestAttackInputsOfANamespaceLeaveOthersTheBuffer", ""},
	{Function, Room, "shim/objects/buffer", "TestAttackKeptDescriptorsHoldNoMoreThanTheQuota", ""},
	{Function, Room, "shim/objects", "TestAttackOpenFilesAreNotKeptForNobody", ""},
	{Function, Room, "shim/objects", "TestAttackKeptObjectsOfANamespaceLeaveOthersTheirs", ""},
	{Function, Room, "shim/functionapi", "TestAttackReadsOfANamespaceLeaveOthersTheirs", ""},
	{Function, Room, "shim/objects/source/ranged", "TestAttackFetchesOfANamespaceLeaveOthersConnections", ""},
	{Function, Room, "shim/objects/source/ranged", "TestAttackFetchesOfANamespaceLeaveOthersTheLink", ""},
	{Function, Objects, "shim/s3proxy", "TestAttackATrickedProgramAsksForAnObject", Integration},
	{Function, Credentials, "shim/s3proxy", "TestAttackASandboxUsesAnothersCredentials", Integration},
	{Function, Objects, "shim/s3proxy", "TestAttackABodyIsAnother", Integration},
	{Function, Objects, "shim/s3proxy", "TestAttackAnOutputIsElsewhere", Integration},
	{Function, Objects, "shim/s3proxy", "TestAttackAFunctionReachesAnotherBucket", Integration},
	{Function, Objects, "shim/s3proxy", "TestAttackAFunctionChangesABucket", Integration},
	{Function, Inputs, "shim/s3proxy", "TestAttackAnotherNamespaceSeesNoRead", Integration},
	{Function, Room, "shim/s3proxy", "TestAttackASandboxAsksForVeryMuch", Integration},
	{Function, Objects, "shim/s3proxy", "TestAttackAProgramTouchesTheNodesOwn", Integration},
	{Function, Objects, "shim/s3proxy", "TestAttackAProgramTouchesTheNodesUploads", Integration},
	{Function, Room, "shim/writeback", "TestAttackWritesOfANamespaceLeaveOthersRoom", ""},

	{Gateway, Objects, "shim/ingress", "TestAHintOfWhatNoTemplateMakes", ""},
	{Gateway, Objects, "shim/ingress", "TestAHintMustBeWellFormed", ""},
	{Gateway, Room, "shim/relay", "TestHostilePeersAreRefused", ""},
	{Gateway, Room, "shim/relay", "TestStreamsAreLimited", ""},
	{Gateway, Room, "shim/relay", "TestEndpointsAreLimited", ""},
	{Gateway, Record, "shim/relay", "TestRefusalsAreBounded", ""},
	{Gateway, Record, "shim/ingress", "TestARefusalMustBeWellFormed", ""},

	{Node, Identity, "control-plane/identity", "TestRefusals", ""},
	{Node, Identity, "control-plane/identity", "TestNodesNeedTheirCertificate", ""},
	{Node, Identity, "control-plane/nodes", "TestStrangersAreRefused", ""},
	{Node, Identity, "control-plane/nodes", "TestANodesNameIsItsCertificates", ""},
	{Node, Identity, "control-plane/coordinator", "TestADaemonSpeaksForItsOwnNodeOnly", ""},
	{Node, Identity, "shim/nodeapi/peertls", "TestStrangersAreRefused", ""},
	{Node, Identity, "shim/identity", "TestStrangersAreRefused", ""},
	{Node, Identity, "shim/probe", "TestPeersThatAreNotAskedTwice", ""},
	{Node, Rights, "manifests/charts", "TestAnInstallerLabelsItsOwnNodeOnly", Cluster},
	{Node, Settings, "control-plane/xds", "TestMeshRefusesStrangers", ""},
	{Node, Settings, "control-plane/platform/local", "TestWordsAboutAnothersInstancesCountForNothing", ""},
	{Node, Traffic, "control-plane/routing", "TestHostileReportsDoNoHarm", ""},
	{Node, Traffic, "control-plane/routing", "TestALyingNodeIsDoubted", ""},
	{Node, Traffic, "control-plane/signals", "TestHostileReports", ""},
	{Node, Traffic, "control-plane/topology", "TestHostileReportsDoNotCount", ""},
	{Node, Traffic, "control-plane/topology", "TestLiarSpoilsItsOwnWaysOnly", ""},
	{Node, Traffic, "control-plane/topology", "TestNobodyIsNextDoorToEverybodyByItsOwnWord", ""},
	{Node, Traffic, "control-plane/platform/local", "TestStartsDoNotPileUp", ""},
	{Node, Room, "control-plane/signals", "TestFloods", ""},
	{Node, Room, "control-plane/identity", "TestAFloodOfCalls", ""},
	{Node, Room, "control-plane/identity", "TestOneAddressDoesNotKeepOthersOut", ""},
	{Node, Room, "control-plane/identity", "TestMessagesHaveALimit", ""},
	{Node, Room, "control-plane/xds", "TestMeshNamesAreLimited", ""},
	{Node, Room, "control-plane/nodes", "TestASlowNodeIsCutOff", ""},
	{Node, Room, "control-plane/budget", "TestAttackANodeLiesAboutItsConnections", ""},
	{Node, Record, "control-plane/nodes", "TestStoreProblems", ""},
	{Node, Record, "control-plane/nodes", "TestDestinationProblems", ""},
	{Node, Record, "control-plane/nodes", "TestKeeps", ""},
	{Node, Record, "control-plane/nodes", "TestRefusalsOfGateways", ""},
	{Node, Record, "control-plane/trace", "TestAttackNodeSendsSpansOfOthers", ""},
	{Node, Requests, "shim/ingress", "TestAttackANodeHandsOver", ""},
	{Node, Requests, "shim/ingress", "TestAttackANodeRepeatsARequest", ""},
	{Node, Requests, "shim/ingress", "TestAttackANodeTakesAnothersAddress", ""},
	{Node, Identity, "control-plane/activation", "TestAttackANodeClaimsACaller", ""},
	{Node, Identity, "control-plane/identity", "TestARevokedNodeIsOut", ""},
	{Node, Identity, "shim/identity", "TestARevokedNodeHasNoPeers", ""},
	{Node, Requests, "control-plane/platform/kube", "TestAttackANodeAsksForWhatItCannotSend", ""},
	{Node, Calls, "control-plane/platform/kube", "TestConformance/ACallerNeedsLeave", ""},
	{Node, Objects, "shim/peers", "TestAttackANodeAsksForAnotherNamespacesObjects", ""},
	{Node, Objects, "shim/peers", "TestAttackANodeAsksForAnotherNamespacesWrites", ""},
	{Node, Objects, "shim/peers", "TestAttackAnotherNamespaceAsksForWhatANodeHolds", ""},
	{Node, Objects, "shim/objects", "TestAttackANeighbourAsksForABucketOfBefore", ""},
	{Node, Objects, "control-plane/platform/kube", "TestAttackANodeMakesItselfATenant", ""},
	{Node, Inputs, "shim/peers", "TestAttackAPeerLies", ""},
	{Node, Inputs, "shim/peers", "TestAttackNothingHasChanged", ""},
	{Node, Room, "shim/peers", "TestAttackAnOwnerFramesAnother", ""},
	{Node, Room, "shim/peers", "TestAttackATrickle", ""},
	{Node, Room, "shim/peers", "TestAttackANodeIsTheWholeTree", ""},
	{Node, Room, "shim/peers", "TestAttackANodeAsksTooMuch", ""},
	{Node, Traffic, "control-plane/topology", "TestAttackANodeIsEverywhere", ""},

	{Daemon, Host, "shim/runtime/spec", "TestApplyRefuses", ""},
	{Daemon, Host, "shim/nodeapi/descriptors", "TestFetchFromOthers", ""},
	{Daemon, Host, "shim/cmd/containerd-shim-headstart-v2", "TestAttackOfTheDaemonOnTheNodesFiles", Integration},
	{Daemon, Host, "shim/cmd/containerd-shim-headstart-v2", "TestAttackOfTheDaemonByDescriptors", Integration},
	{Daemon, Inputs, "shim/cmd/containerd-shim-headstart-v2", "TestKilledShimLeavesNoMounts", Integration},
	{Daemon, Inputs, "shim/runtime/spec", "TestAttackOfTheDaemonByVolumes", ""},
	{Daemon, Inputs, "shim/runtime", "TestAttackOfTheDaemonByAnotherNamespacesVolume", ""},
	{Daemon, Host, "shim/runtime", "TestAttackOfTheDaemonByDescriptions", ""},
	{Daemon, Host, "shim/runtime/spec", "TestAttackOfTheDaemonByEndpoints", ""},
	{Daemon, Host, "shim/runtime", "TestAttackOfTheDaemonByEndpoints", ""},
	{Daemon, Host, "shim/cmd/containerd-shim-headstart-v2", "TestAttackOfTheDaemonBySockets", Integration},
	{Daemon, Host, "shim/nodeapi/streams", "TestAttackOfTheDaemonByAddresses", ""},
	{Daemon, Host, "shim/nodeapi/streams", "TestAttackOfTheDaemonByStreams", ""},
	{Daemon, Host, "shim/nodeapi/streams", "TestAttackOfTheDaemonByTargets", ""},
	{Daemon, Host, "shim/runtime", "TestAttackOfTheDaemonByBytes", ""},
	{Daemon, Host, "shim/runtime", "TestAttackOfTheDaemonOnTheNodesNetwork", ""},
	{Daemon, Host, "shim/runtime", "TestAttackOfTheDaemonByItsSocket", ""},
	{Daemon, Record, "shim/runtime", "TestAttackOfTheDaemonByItsWords", ""},
	{Daemon, Host, "manifests/charts", "TestAttackOfTheDaemonOnItsNode", Cluster},
	{Daemon, Settings, "manifests/istio", "TestAttackTheDaemonIsNoSourceOfCode", ""},
	{Daemon, Settings, "filters/route/filter", "TestAttackADaemonSaysNonsense", ""},
	{Daemon, Settings, "e2e/relay", "TestAttackADaemonGivesAGatewayCode", Integration},
	{Daemon, Requests, "filters/route/filter", "TestAttackADaemonPicksAFunctionWithAnInput", ""},
	{Daemon, Requests, "e2e/relay", "TestAttackExpectationsOfAFunctionWithAnInput", Integration},
	{Daemon, Traffic, "filters/route/filter", "TestAttackADaemonSteersAnothersRequests", ""},
	{Daemon, Credentials, "manifests/charts", "TestWhoMayDoWhat", Cluster},
	{Daemon, Record, "control-plane/trace", "TestStoreBoundsATrace", ""},
	{Daemon, Room, "filters/route/filter", "TestAttackADaemonKeepsAWorkerBusy", ""},
	{Daemon, Room, "control-plane/trace", "TestStoreBoundsItsMemory", ""},

	{ControlPlane, Rights, "manifests/charts", "TestTheControlPlaneMayDoNoMore", Cluster},
	{ControlPlane, Traffic, "control-plane/admission", "TestAStolenControlPlaneTokenReroutesNothing", ""},
	{ControlPlane, Settings, "control-plane/admission", "TestAStolenControlPlaneTokenChangesNoCode", ""},
	{ControlPlane, Rights, "control-plane/admission", "TestAStolenControlPlaneTokenScalesNothingElse", ""},
	{ControlPlane, Record, "control-plane/admission", "TestAStolenControlPlaneTokenSpeaksForNobodyElse", ""},
	{ControlPlane, Rights, "control-plane/istio", "TestAStolenControlPlaneTokenWritesNothingElse", Cluster},
	{ControlPlane, Rights, "control-plane/admission", "TestTheAPIServerRestrictsTheControlPlane", Cluster},
	{ControlPlane, Credentials, "manifests/charts", "TestWhoMayDoWhat", Cluster},
	{ControlPlane, Credentials, "shim/stores", "TestAttackControlPlaneHasCredentialsSentElsewhere", ""},
	{ControlPlane, Objects, "shim/stores", "TestAttackControlPlaneGivesAStoreToAnotherNamespace", ""},
	{ControlPlane, Identity, "shim/nodeapi/peertls", "TestClientRefusesTheWrongServer", ""},
	{ControlPlane, Settings, "shim/relay", "TestWrongEndpointsAreRefused", ""},
	{ControlPlane, Settings, "shim/relay", "TestWrongExpectationsAreRefused", ""},
	{ControlPlane, Requests, "shim/mesh", "TestOnlyTheRightWorkloadGetsARequest", ""},
	{ControlPlane, Room, "shim/relay", "TestTooManyAssignments", ""},
	{ControlPlane, Room, "shim/uplink", "TestAttackOfTheControlPlaneByCallsWithoutEnd", ""},

	{Store, Inputs, "shim/objects", "TestNobodyGetsWhatIsOlderThanHisRequest", ""},
	{Store, Inputs, "shim/objects/source/ranged", "TestAnotherVersionIsAChange", ""},
	{Store, Inputs, "shim/objects/source/s3", "TestFetchComparesEntityTags", ""},
	{Store, Credentials, "shim/objects/source/http", "TestCredentials", ""},
	{Store, Credentials, "shim/objects/source/http", "TestFetchFails/redirect", ""},
	{Store, Credentials, "shim/objects/source/secret", "TestSecretsShowNothing", ""},
	{Store, Host, "shim/stores", "TestAttackStoresNameResolvesToTheNodeOrItsMetadata", ""},
	{Store, Host, "shim/stores", "TestAttackStoresNameResolvesToAPrivateAddress", ""},
	{Store, Room, "shim/objects/source/http", "TestFetchFails/endless header", ""},
	{Store, Host, "shim/objects/tree", "TestAttackOfTheStoreByKeys", ""},
	{Store, Room, "shim/objects/tree", "TestAttackOfTheStoreByManyObjects", ""},
	{Store, Room, "shim/objects/tree", "TestAttackOfTheStoreByDirectories", ""},
	{Store, Room, "shim/objects/source/s3", "TestAttackOfTheStoreByLists", ""},
	{Store, Room, "shim/objects/buffer", "TestGrowthKeepsToTheLimit", ""},

	{Redis, Inputs, "shim/objects/buffer/remote", "TestServerLosesAChunk", ""},
	{Redis, Inputs, "shim/objects/source/redis", "TestRepliesThatAreNone", ""},
	{Redis, Requests, "shim/trigger", "TestAPoisonedEntryIsADeadLetter", ""},
	{Redis, Room, "shim/trigger/redis", "TestAnAnswerThatIsTooLarge", ""},
	{Redis, Room, "shim/trigger", "TestAnEntryThatIsTooLarge", ""},
	{Redis, Room, "shim/trigger/redis", "TestDeadLettersAreBounded", Integration},
}
