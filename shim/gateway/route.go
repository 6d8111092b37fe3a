package gateway

import (
	"net/http"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previouspriorities "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// retryConditions are those in which no byte of the request has left the gateway, so
	// that no function runs twice.
	retryConditions = "connect-failure,reset-before-request"
	// maxRetries with Envoy's full jitter between retryBase and retryMax bridge 2.4 s on
	// average and 1.3 s in 99 of 100 cases: the restart of a daemon.
	maxRetries = 12
	retryBase  = 50 * time.Millisecond
	retryMax   = 500 * time.Millisecond
	// retryBuffer is the part of a body that Envoy keeps for a retry. A request with more
	// is not retried.
	retryBuffer = 64 << 10
	// triesPerPriority fail before a retry goes to the endpoints of the next priority,
	// which are instances with a weight of 0. Beyond the last it begins again.
	triesPerPriority = 2
	// daemonFirst is how much later than the daemon the gateway gives up, because the
	// daemon knows and says better what went wrong.
	daemonFirst = 5 * time.Second
)

// routes has no route for unknown hosts: Envoy's own answer becomes a problem in
// localReplies. Requests do not even enter the filters if these have nothing to say of their
// function.
func (c Config) routes(functions []*nodeapi.Function, picked map[string]bool, p *packer) *routev3.RouteConfiguration {
	all := &routev3.RouteConfiguration{Name: routesName, IgnorePortInHostMatching: true}
	if c.OTLPSocket != "" {
		all.RequestHeadersToRemove = traceHeaders
	}
	var unfiltered map[string]*anypb.Any
	if c.Filters != "" {
		unfiltered = map[string]*anypb.Any{module.Name: withoutFilter(p)}
	}
	for _, f := range functions {
		v := virtualHost(f, p)
		v.Routes = append([]*routev3.Route{malformed(f, unfiltered)}, v.Routes...)
		if !f.TakesInput() && !picked[f.GetName()] {
			v.TypedPerFilterConfig = unfiltered
		}
		all.VirtualHosts = append(all.VirtualHosts, v)
	}
	return all
}

func virtualHost(f *nodeapi.Function, p *packer) *routev3.VirtualHost {
	said := metadata(f, p)
	route := func(cluster string, match *routev3.RouteMatch) *routev3.Route {
		return &routev3.Route{Name: f.GetName(), Match: match, Action: forward(f, cluster), Metadata: said}
	}
	var routes []*routev3.Route
	for _, named := range namesInput(f) { // hot or cold: the daemon is the one that has the input
		routes = append(routes, route(ingressCluster, named))
	}
	return &routev3.VirtualHost{
		Name:    f.GetName(),
		Domains: f.GetHosts(),
		Routes:  append(routes, route(f.GetName(), &routev3.RouteMatch{PathSpecifier: anyPath()})),
		RequestHeadersToAdd: []*core.HeaderValueOption{{
			Header:       &core.HeaderValue{Key: filterapi.HeaderFunction, Value: f.GetName()},
			AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}},
		RetryPolicy: &routev3.RetryPolicy{
			RetryOn:    retryConditions,
			NumRetries: wrapperspb.UInt32(maxRetries),
			RetryPriority: &routev3.RetryPolicy_RetryPriority{
				Name: "envoy.retry_priorities.previous_priorities",
				ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
					TypedConfig: p.pack(&previouspriorities.PreviousPrioritiesConfig{
						UpdateFrequency: triesPerPriority,
					}),
				},
			},
			RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
				BaseInterval: durationpb.New(retryBase),
				MaxInterval:  durationpb.New(retryMax),
			},
		},
		RequestBodyBufferLimit: wrapperspb.UInt64(retryBuffer),
	}
}

// metadata is what the prefetch filter reads of a request's route. The cluster could not say it: a request
// with an input goes to the daemon's, and a changed cluster loses its connections.
func metadata(f *nodeapi.Function, p *packer) *core.Metadata {
	if !f.TakesInput() {
		return nil
	}
	text, err := prefetchOf(f).Marshal()
	if err != nil && p.err == nil {
		p.err = err
	}
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
		filterapi.MetadataNamespace: {Fields: map[string]*structpb.Value{
			filterapi.MetadataPrefetch: structpb.NewStringValue(string(text)),
		}},
	}}
}

// namesInput are the ways in which a request may name an input of the function: by anything that
// a template names, or if one names nothing by being one. The filter says the same, and may not
// be loaded.
func namesInput(f *nodeapi.Function) []*routev3.RouteMatch {
	if !f.TakesInput() {
		return nil
	}
	templates, err := reference.ParseTemplates(f.Templates())
	if err != nil || len(templates) == 0 { // checkFunctions refuses the wrong ones
		return []*routev3.RouteMatch{{PathSpecifier: anyPath()}}
	}
	var route string
	for _, t := range templates {
		if len(t.Headers())+len(t.Parameters())+len(t.Variables()) == 0 {
			return []*routev3.RouteMatch{{PathSpecifier: anyPath()}}
		}
		if len(t.Variables()) > 0 {
			route = t.Route().Pattern() // all have the same
		}
	}
	var ways []*routev3.RouteMatch
	for _, name := range templates.Headers() {
		ways = append(ways, &routev3.RouteMatch{PathSpecifier: anyPath(), Headers: []*routev3.HeaderMatcher{
			{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}}})
	}
	for _, name := range templates.Parameters() {
		ways = append(ways, &routev3.RouteMatch{PathSpecifier: anyPath(),
			QueryParameters: []*routev3.QueryParameterMatcher{
				{Name: name, QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}}}})
	}
	if route != "" {
		ways = append(ways, &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{
			SafeRegex: &matcher.RegexMatcher{Regex: route}}})
	}
	return ways
}

// badEscape matches paths with a % that two hexadecimal digits do not follow (RFC 3986, section 2.1).
const badEscape = `.*%([^0-9A-Fa-f].*|[0-9A-Fa-f]([^0-9A-Fa-f].*)?)?`

// malformed refuses what Envoy lets pass and daemons cannot read: hot and cold requests alike.
func malformed(f *nodeapi.Function, unfiltered map[string]*anypb.Any) *routev3.Route {
	return &routev3.Route{
		Name: f.GetName(),
		Match: &routev3.RouteMatch{
			PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: badEscape}},
		},
		Action: &routev3.Route_DirectResponse{
			DirectResponse: &routev3.DirectResponseAction{Status: http.StatusBadRequest},
		},

		TypedPerFilterConfig: unfiltered, // no input is fetched for it
	}
}

func anyPath() *routev3.RouteMatch_Prefix { return &routev3.RouteMatch_Prefix{Prefix: "/"} }

func forward(f *nodeapi.Function, cluster string) *routev3.Route_Route {
	// A cold request waits for the start first. Envoy counts from the request's end, and
	// the idle timeout from the last byte: it ends uploads that stand still.
	timeout := durationpb.New(f.GetReadyTimeout().AsDuration() + f.GetRequestTimeout().AsDuration() + daemonFirst)
	return &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          timeout,
		IdleTimeout:      timeout,
	}}
}
