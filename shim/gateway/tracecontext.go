package gateway

import (
	xdscore "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcher "github.com/cncf/xds/go/xds/type/matcher/v3"
	mutation "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matching "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	skip "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	headermutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	codec "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// traceHeaders are W3C's. Routes remove the client's, and then the tracer sets its own: an
// invalid trace context goes no further.
var traceHeaders = []string{"traceparent", traceState}

const traceState = "tracestate"

// withoutEmptyTraceState are a cluster's filters: Envoy's tracer gives each request a tracestate,
// an empty one if the client sent none.
func withoutEmptyTraceState(p *packer) []*hcm.HttpFilter {
	some := &xdsmatcher.Matcher_MatcherList_Predicate{MatchType: &xdsmatcher.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &xdsmatcher.Matcher_MatcherList_Predicate_SinglePredicate{
			Input: &xdscore.TypedExtensionConfig{
				Name: traceState, TypedConfig: p.pack(&matcher.HttpRequestHeaderMatchInput{HeaderName: traceState}),
			},
			Matcher: &xdsmatcher.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &xdsmatcher.StringMatcher{
				MatchPattern: &xdsmatcher.StringMatcher_SafeRegex{SafeRegex: &xdsmatcher.RegexMatcher{
					EngineType: &xdsmatcher.RegexMatcher_GoogleRe2{GoogleRe2: &xdsmatcher.RegexMatcher_GoogleRE2{}},
					Regex:      ".+",
				}},
			}},
		},
	}}
	stays := &xdsmatcher.Matcher_OnMatch{OnMatch: &xdsmatcher.Matcher_OnMatch_Action{
		Action: &xdscore.TypedExtensionConfig{Name: "skip", TypedConfig: p.pack(&skip.SkipFilter{})},
	}}
	remove := &core.TypedExtensionConfig{Name: "envoy.filters.http.header_mutation", TypedConfig: p.pack(&headermutation.HeaderMutation{
		Mutations: &headermutation.Mutations{
			RequestMutations: []*mutation.HeaderMutation{{Action: &mutation.HeaderMutation_Remove{Remove: traceState}}},
		},
	})}
	unless := &matching.ExtensionWithMatcher{ExtensionConfig: remove, XdsMatcher: &xdsmatcher.Matcher{
		MatcherType: &xdsmatcher.Matcher_MatcherList_{MatcherList: &xdsmatcher.Matcher_MatcherList{
			Matchers: []*xdsmatcher.Matcher_MatcherList_FieldMatcher{{Predicate: some, OnMatch: stays}},
		}},
	}}
	return []*hcm.HttpFilter{
		{Name: traceState, ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: p.pack(unless)}},
		// The last one sends the request.
		{
			Name:       "envoy.filters.http.upstream_codec",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: p.pack(&codec.UpstreamCodec{})},
		},
	}
}
