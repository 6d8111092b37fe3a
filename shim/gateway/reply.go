package gateway

import (
	"net/http"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cel "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// replies are the answers that Envoy makes itself, as problem details; the first that
// matches is taken. The filter's own problems match none and pass as they are.
// docs/reference/errors.md lists the reasons. Flags are Envoy's response flags.
var replies = []struct {
	flags  []string
	when   string // for what Envoy sets no flag, as CEL
	answer int
	reason string
	detail string
}{
	{flags: []string{"NR"}, answer: http.StatusNotFound, reason: "NoSuchFunction",
		detail: "no function answers to the host %REQ(:AUTHORITY)%"},
	{flags: []string{"UT", "SI"}, answer: http.StatusGatewayTimeout, reason: "RequestTimeout",
		detail: "the function did not answer within its request timeout"},
	{flags: []string{"UF"}, answer: http.StatusServiceUnavailable, reason: "Unreachable",
		detail: "neither an instance of the function nor the node's daemon takes connections; the request was not delivered and may be sent again"},
	// The retry buffer was full and nothing is connected: the same, for a large body.
	{when: `response.code == 507`, answer: http.StatusServiceUnavailable, reason: "Unreachable",
		detail: "neither an instance of the function nor the node's daemon takes connections, and the body is too large to wait for one; the request may be sent again"},
	{flags: []string{"UC", "UR", "LR", "UPE"}, answer: http.StatusBadGateway, reason: "ConnectionLost",
		detail: "the connection broke before the answer was complete; the function may have run"},
	{flags: []string{"UO"}, answer: http.StatusServiceUnavailable, reason: "TooManyRequests",
		detail: "too many requests wait for this function at this gateway; the request was not delivered"},
	{flags: []string{"UH", "NC"}, answer: http.StatusServiceUnavailable, reason: "NotRouted",
		detail: "the gateway does not know yet where the function is served; the request was not delivered and may be sent again"},
	{when: `response.code_details == "missing_host_header"`, reason: "RequestRefused",
		detail: "the request has no Host header; the gateway finds the function by it"},
	{when: `response.code_details == "direct_response"`, reason: "RequestRefused",
		detail: "the path has a percent sign that is not followed by two hexadecimal digits"},
	{when: `(response.code >= 400 && response.code < 500 || response.code == 501)`, reason: "RequestRefused",
		detail: "the gateway refused the request: %RESPONSE_CODE_DETAILS%"},
	{when: `response.code >= 500`, reason: "GatewayFailed",
		detail: "the gateway failed before it delivered the request"},
}

// noProblem is true of what Envoy itself answers: only a filter's problem has a type by then.
const noProblem = ` && !("content-type" in response.headers)`

func localReplies(p *packer) *hcm.LocalReplyConfig {
	var c hcm.LocalReplyConfig
	for _, r := range replies {
		filter := &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslog.ResponseFlagFilter{Flags: r.flags},
		}}
		if r.when != "" {
			filter = &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ExtensionFilter{ExtensionFilter: &accesslog.ExtensionFilter{
				Name: "envoy.access_loggers.extension_filters.cel",
				ConfigType: &accesslog.ExtensionFilter_TypedConfig{
					TypedConfig: p.pack(&cel.ExpressionFilter{Expression: r.when + noProblem}),
				},
			}}}
		}
		m := &hcm.ResponseMapper{Filter: filter, BodyFormatOverride: problem(r.reason, r.detail)}
		if r.answer != 0 {
			m.StatusCode = wrapperspb.UInt32(uint32(r.answer))
		}
		c.Mappers = append(c.Mappers, m)
	}
	return &c
}

// problem is filterapi.Problem with Envoy's command operators in its values; a lone
// operator keeps its type, and members without a value are left out.
func problem(reason, detail string) *core.SubstitutionFormatString {
	p := filterapi.NewProblem(0, reason, "", detail)
	text := func(s string) *structpb.Value { return structpb.NewStringValue(s) }
	return &core.SubstitutionFormatString{
		ContentType:     filterapi.ProblemContentType,
		OmitEmptyValues: true,
		Format: &core.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: map[string]*structpb.Value{
			"type":     text(p.Type),
			"title":    text(p.Title),
			"status":   text("%RESPONSE_CODE%"),
			"detail":   text(p.Detail),
			"function": text("%ROUTE_NAME%"),
			"request":  text("%REQ(" + filterapi.HeaderRequest + ")%"),
		}}},
	}
}
