package xds

import (
	"net/http"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previouspriorities "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
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
// localReplies. Requests do not even enter filters that have nothing to say of their
// function.
func routes(cfg Config, functions []platform.Function, perRequest []filterapi.RouteFunction, p *packer) *routev3.RouteConfiguration {
	picked := make(map[string]bool, len(perRequest))
	for _, f := range perRequest {
		picked[f.Cluster] = true
	}
	c := &routev3.RouteConfiguration{Name: routesName, IgnorePortInHostMatching: true}
	if cfg.OTLPSocket != "" {
		c.RequestHeadersToRemove = traceHeaders
	}
	unfiltered := make(map[string]*anypb.Any)
	if cfg.FilterPath != "" {
		unfiltered[module.PrefetchName] = withoutFilter(p)
	}
	if cfg.RouteFilterPath != "" {
		unfiltered[module.RouteName] = withoutFilter(p)
	}
	for _, f := range functions {
		v := virtualHost(f, p)
		v.Routes = append([]*routev3.Route{malformed(f, unfiltered)}, v.Routes...)
		without := make(map[string]*anypb.Any)
		if cfg.FilterPath != "" && f.Policy.Input == "" {
			without[module.PrefetchName] = withoutFilter(p)
		}
		if cfg.RouteFilterPath != "" && !picked[f.Name] {
			without[module.RouteName] = withoutFilter(p)
		}
		if len(without) > 0 {
			v.TypedPerFilterConfig = without
		}
		c.VirtualHosts = append(c.VirtualHosts, v)
	}
	return c
}

func virtualHost(f platform.Function, p *packer) *routev3.VirtualHost {
	route := func(cluster string, match *routev3.RouteMatch) *routev3.Route {
		return &routev3.Route{Name: f.Name, Match: match, Action: forward(f, cluster)}
	}
	var routes []*routev3.Route
	for _, named := range namesInput(f) { // hot or cold: the daemon is the one that has the input
		routes = append(routes, route(ingressCluster, named))
	}
	return &routev3.VirtualHost{
		Name:    f.Name,
		Domains: f.Hosts,
		Routes:  append(routes, route(f.Name, &routev3.RouteMatch{PathSpecifier: anyPath()})),
		RequestHeadersToAdd: []*core.HeaderValueOption{{
			Header:       &core.HeaderValue{Key: filterapi.HeaderFunction, Value: f.Name},
			AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		}},
		RetryPolicy: &routev3.RetryPolicy{
			RetryOn:    retryConditions,
			NumRetries: wrapperspb.UInt32(maxRetries),
			RetryPriority: &routev3.RetryPolicy_RetryPriority{
				Name: "envoy.retry_priorities.previous_priorities",
				ConfigType: &routev3.RetryPolicy_RetryPriority_TypedConfig{
					TypedConfig: p.pack(&previouspriorities.PreviousPrioritiesConfig{UpdateFrequency: triesPerPriority}),
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

// namesInput are the ways in which a request may name an input of the function: by anything that
// the template names, or if that names nothing by being one. The filter says the same, and may not
// be loaded.
func namesInput(f platform.Function) []*routev3.RouteMatch {
	if f.Policy.Input == "" {
		return nil
	}
	template, err := reference.ParseTemplate(f.Policy.Template())
	headers, parameters, variables := template.Headers(), template.Parameters(), template.Variables()
	if err != nil || len(headers)+len(parameters)+len(variables) == 0 { // pluginConfig refuses the wrong ones
		return []*routev3.RouteMatch{{PathSpecifier: anyPath()}}
	}
	var ways []*routev3.RouteMatch
	for _, name := range headers {
		ways = append(ways, &routev3.RouteMatch{PathSpecifier: anyPath(), Headers: []*routev3.HeaderMatcher{
			{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}}})
	}
	for _, name := range parameters {
		ways = append(ways, &routev3.RouteMatch{PathSpecifier: anyPath(), QueryParameters: []*routev3.QueryParameterMatcher{
			{Name: name, QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}}}})
	}
	if len(variables) > 0 {
		ways = append(ways, &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: template.Route().Pattern()}}})
	}
	return ways
}

// badEscape matches paths with a % that two hexadecimal digits do not follow (RFC 3986, section 2.1).
const badEscape = `.*%([^0-9A-Fa-f].*|[0-9A-Fa-f]([^0-9A-Fa-f].*)?)?`

// malformed refuses what Envoy lets pass and daemons cannot read: hot and cold requests alike.
func malformed(f platform.Function, unfiltered map[string]*anypb.Any) *routev3.Route {
	return &routev3.Route{
		Name:   f.Name,
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: badEscape}}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusBadRequest}},

		TypedPerFilterConfig: unfiltered, // no input is fetched for it
	}
}

func anyPath() *routev3.RouteMatch_Prefix { return &routev3.RouteMatch_Prefix{Prefix: "/"} }

func forward(f platform.Function, cluster string) *routev3.Route_Route {
	// A cold request waits for the start first. Envoy counts from the request's end, and
	// the idle timeout from the last byte: it ends uploads that stand still.
	timeout := durationpb.New(f.Policy.ReadyTimeout + f.RequestTimeout + daemonFirst)
	return &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          timeout,
		IdleTimeout:      timeout,
	}}
}
