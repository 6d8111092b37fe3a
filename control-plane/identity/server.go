package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

const (
	// tokenMost bounds a token, in bytes: the API server's have about 1 KiB.
	tokenMost = 16 << 10
	// reviewTimeout bounds one call, most of which is the API server's answer.
	reviewTimeout = 10 * time.Second
)

// Server issues the nodes' certificates (nodeapi.IdentityServer).
type Server struct {
	nodeapi.UnimplementedIdentityServer
	authority *Authority
	cluster   Cluster
	log       *slog.Logger
	limit     limiter
	reviews   chan struct{}
}

// Server returns a's server for daemons that cluster vouches for.
func (a *Authority) Server(cluster Cluster, log *slog.Logger) *Server {
	return &Server{authority: a, cluster: cluster, log: log, reviews: make(chan struct{}, reviewsMost)}
}

// Issue signs the certificate of the node that the caller's token is for. Codes:
//
//	Unauthenticated     no token, or not a valid one for Headstart
//	PermissionDenied    the token is not a daemon's, its node is revoked, an address is not its pod's
//	InvalidArgument     the certificate request
//	FailedPrecondition  the token does not name a node (Kubernetes before 1.30)
//	ResourceExhausted   too many calls: try again in some seconds
//	Unavailable         the API server, or the pod has no address yet: try again
func (s *Server) Issue(ctx context.Context, r *nodeapi.IssueRequest) (*nodeapi.IssueResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	from := caller(ctx)
	answer, pod, err := s.issue(ctx, from, r)
	switch {
	case status.Code(err) == codes.ResourceExhausted: // a log line each would be the next flood
	case err != nil:
		s.log.WarnContext(ctx, "no certificate issued", "caller", from, "node", pod.Node, "pod", pod.Name, "reason", status.Convert(err).Message())
	default:
		s.log.InfoContext(ctx, "certificate issued", "caller", from, "node", pod.Node, "pod", pod.Name)
	}
	return answer, err
}

func (s *Server) issue(ctx context.Context, from netip.Addr, r *nodeapi.IssueRequest) (*nodeapi.IssueResponse, Pod, error) {
	if !s.limit.allow(from) {
		return nil, Pod{}, status.Error(codes.ResourceExhausted, "too many calls from this address; try again in some seconds")
	}
	token, err := bearer(ctx)
	if err != nil {
		return nil, Pod{}, err
	}
	// Before the token: it costs nobody else anything.
	request, err := readRequest(r.GetCertificateRequest())
	if err != nil {
		return nil, Pod{}, status.Errorf(codes.InvalidArgument, "the certificate request: %v", err)
	}
	select {
	case s.reviews <- struct{}{}:
		defer func() { <-s.reviews }()
	case <-ctx.Done():
		return nil, Pod{}, status.Error(codes.Unavailable, "too many daemons ask at a time; try again")
	}
	pod, err := s.cluster.Review(ctx, token)
	if err != nil {
		return nil, pod, s.refused(ctx, err)
	}
	if s.authority.Revoked(pod.Node) {
		return nil, pod, status.Errorf(codes.PermissionDenied, "node %s is revoked in ConfigMap %s", pod.Node, RevokedName)
	}
	if err := s.owns(ctx, pod, request.ips); err != nil {
		return nil, pod, err
	}
	certificate, err := s.authority.node(pod.Node, request)
	if err != nil {
		return nil, pod, status.Errorf(codes.Internal, "issuing the certificate: %v", err)
	}
	return &nodeapi.IssueResponse{Certificate: certificate, Authority: s.authority.Certificate()}, pod, nil
}

// refused is what the caller gets to know of a token that does not do.
func (s *Server) refused(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrToken):
		return status.Error(codes.Unauthenticated, "the token is not valid: it must be a service account's, projected with audience "+Audience+", and not expired")
	case errors.Is(err, ErrNotDaemon):
		return status.Errorf(codes.PermissionDenied, "%v; certificates are issued to service account %s only", err, ServiceAccount)
	case errors.Is(err, ErrNoNode):
		return status.Error(codes.FailedPrecondition, ErrNoNode.Error()+": use a projected token of the pod, with Kubernetes 1.30 or later")
	}
	return s.away(ctx, err)
}

// away hides the API server's words from the caller, and not from the log.
func (s *Server) away(ctx context.Context, err error) error {
	s.log.ErrorContext(ctx, "the API server could not be asked about a daemon", "error", err)
	return status.Error(codes.Unavailable, "the API server could not be asked about the token; try again")
}

// owns refuses addresses that are not the pod's: with them the daemon could pretend to
// be another node's.
func (s *Server) owns(ctx context.Context, pod Pod, ips []netip.Addr) error {
	if slices.Contains(s.authority.names, pod.Node) {
		return status.Errorf(codes.PermissionDenied, "a node called %s would pass for the control plane; rename it", pod.Node)
	}
	if len(ips) == 0 {
		return nil
	}
	own, err := s.cluster.PodIPs(ctx, pod)
	if err != nil {
		return s.away(ctx, err)
	}
	if len(own) == 0 {
		return status.Errorf(codes.Unavailable, "pod %s/%s has no address yet; try again", pod.Namespace, pod.Name)
	}
	for _, ip := range ips {
		if !slices.Contains(own, ip) {
			return status.Errorf(codes.PermissionDenied, "%v is not an address of pod %s/%s, which has %v", ip, pod.Namespace, pod.Name, own)
		}
	}
	return nil
}

// node signs a node's certificate, which is good as client and as server, and returns
// it as PEM.
func (a *Authority) node(name string, r asked) ([]byte, error) {
	tmpl := template(name, Lifetime)
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	tmpl.DNSNames = []string{name}
	for _, ip := range r.ips {
		tmpl.IPAddresses = append(tmpl.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := a.current().sign(tmpl, r.key)
	if err != nil {
		return nil, err
	}
	return encode("CERTIFICATE", der), nil
}

// bearer returns the call's token. Its errors hold nothing of it.
func bearer(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return "", status.Error(codes.Unauthenticated, "send the service account's token as metadata authorization: Bearer <token>")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" || len(token) > tokenMost {
		return "", status.Error(codes.Unauthenticated, "the metadata authorization is not of the form Bearer <token>")
	}
	return token, nil
}

// caller is the connection's other end; the zero address for those that have none.
func caller(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	return serve.AddressOf(p.Addr)
}
