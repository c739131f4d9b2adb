package proxy

const (
	runtimeService = "/runtime.v1.RuntimeService/"
	imageService   = "/runtime.v1.ImageService/"
)

// way is how a method's call finds its backends.
type way uint8

const (
	// toPrimary has no owner but the node's main runtime.
	toPrimary way = iota + 1
	// toSandbox and toContainer have the id in their request's first field.
	toSandbox
	toContainer
	// stateRun is RunPodSandbox.
	stateRun
	// imageStatus, pull and removeImage have an ImageSpec as their request's first field.
	imageStatus
	pull
	removeImage
	// toAll asks every backend and puts the answers together.
	toAll
	// toAllStreams is the same for streams that end.
	toAllStreams
	// events is the stream that does not.
	events
	// statusOfAll and configureAll are Status and UpdateRuntimeConfig.
	statusOfAll
	configureAll
)

// rule says what the proxy does with a method that it knows.
type rule struct {
	way way
	// keeps is set on lists whose items are given for a backend that does not answer; kind says which.
	keeps bool
	kind  kind
	// plain is the method with the same request and items that answers in one message: what a streaming list falls back to.
	plain string
	// needsPrimary: without the primary's answer there is none.
	needsPrimary bool
}

// rules are all methods of the CRI that the proxy knows: those of cri-api 0.37.2. A test holds them against its descriptor.
var rules = map[string]rule{
	runtimeService + "Version":       {way: toPrimary},
	runtimeService + "RuntimeConfig": {way: toPrimary},
	runtimeService + "RestorePod":    {way: toPrimary}, // no other backend can

	runtimeService + "RunPodSandbox":             {way: stateRun},
	runtimeService + "StopPodSandbox":            {way: toSandbox},
	runtimeService + "RemovePodSandbox":          {way: toSandbox},
	runtimeService + "PodSandboxStatus":          {way: toSandbox},
	runtimeService + "PodSandboxStats":           {way: toSandbox},
	runtimeService + "PortForward":               {way: toSandbox},
	runtimeService + "CheckpointPod":             {way: toSandbox},
	runtimeService + "UpdatePodSandboxResources": {way: toSandbox},
	runtimeService + "CreateContainer":           {way: toSandbox},

	runtimeService + "StartContainer":           {way: toContainer},
	runtimeService + "StopContainer":            {way: toContainer},
	runtimeService + "RemoveContainer":          {way: toContainer},
	runtimeService + "ContainerStatus":          {way: toContainer},
	runtimeService + "ContainerStats":           {way: toContainer},
	runtimeService + "UpdateContainerResources": {way: toContainer},
	runtimeService + "ReopenContainerLog":       {way: toContainer},
	runtimeService + "CheckpointContainer":      {way: toContainer},
	runtimeService + "ExecSync":                 {way: toContainer},
	runtimeService + "Exec":                     {way: toContainer},
	runtimeService + "Attach":                   {way: toContainer},

	runtimeService + "ListPodSandbox":        {way: toAll, keeps: true, kind: sandboxes},
	runtimeService + "ListContainers":        {way: toAll, keeps: true, kind: containers},
	runtimeService + "ListContainerStats":    {way: toAll},
	runtimeService + "ListPodSandboxStats":   {way: toAll},
	runtimeService + "ListPodSandboxMetrics": {way: toAll},
	runtimeService + "ListMetricDescriptors": {way: toAll},

	runtimeService + "StreamPodSandboxes":      {way: toAllStreams, keeps: true, kind: sandboxes, plain: runtimeService + "ListPodSandbox"},
	runtimeService + "StreamContainers":        {way: toAllStreams, keeps: true, kind: containers, plain: runtimeService + "ListContainers"},
	runtimeService + "StreamContainerStats":    {way: toAllStreams, plain: runtimeService + "ListContainerStats"},
	runtimeService + "StreamPodSandboxStats":   {way: toAllStreams, plain: runtimeService + "ListPodSandboxStats"},
	runtimeService + "StreamPodSandboxMetrics": {way: toAllStreams, plain: runtimeService + "ListPodSandboxMetrics"},

	runtimeService + "GetContainerEvents":  {way: events},
	runtimeService + "Status":              {way: statusOfAll},
	runtimeService + "UpdateRuntimeConfig": {way: configureAll},

	imageService + "ListImages":   {way: toAll, keeps: true, kind: images},
	imageService + "StreamImages": {way: toAllStreams, keeps: true, kind: images, plain: imageService + "ListImages"},
	imageService + "ImageStatus":  {way: imageStatus},
	imageService + "PullImage":    {way: pull},
	imageService + "RemoveImage":  {way: removeImage},
	imageService + "ImageFsInfo":  {way: toAll, needsPrimary: true},
}
