// Package sigv4 verifies AWS Signature Version 4 of requests to S3, on the server's side. Its source is the Amazon S3
// API Reference: "Authenticating Requests (AWS Signature Version 4)", and the pages below it.
package sigv4

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Anybody can send a request, so its parts have limits. Lengths are in bytes.
const (
	authorizationMost = 4 << 10  // SDKs send about 600
	queryMost         = 32 << 10 // presigned URLs have the session token, of several KiB
	signedHeadersMost = 100      // SDKs sign about 10, and one for each entry of an object's metadata
)

// These are S3's.
const (
	skewMost    = 15 * time.Minute // how far a client's clock may be wrong
	expiresMost = 7 * 24 * 60 * 60 // the longest life of a presigned URL, in seconds
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	stamp     = "20060102T150405Z" // the form of a signature's time
	day       = "20060102"         // the form of its date
	hint      = "use the credentials that the SDK finds by itself"
)

// Keys finds a secret access key. ok is false for an unknown key id. token is the session token that has to come with
// the key. If token is empty, none may come.
type Keys func(accessKeyID string) (secret, token string, ok bool)

// Verify checks who signed a request. It neither reads the body, which Signed.Body verifies, nor changes the request.
// What is signed of the path is r.URL.Path: bucket and key have to be taken from that. All errors are *Error.
func Verify(r *http.Request, now time.Time, keys Keys) (*Signed, error) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	c, err := claimOf(r, query)
	if err != nil {
		return nil, err
	}
	if err := c.timely(now); err != nil {
		return nil, err
	}
	id, region, err := c.scope()
	if err != nil {
		return nil, err
	}
	secret, token, ok := keys(id)
	if !ok {
		return nil, forbidden("InvalidAccessKeyId", "the access key id in Credential is not known here; %s", hint)
	}
	canonical, err := c.canonical(r, query)
	if err != nil {
		return nil, err
	}
	s := &Signed{
		AccessKeyID: id, Region: region, Presigned: c.presigned, ContentSHA256: c.payload,
		key: signingKey(secret, c.time.Format(day), region), time: c.time, signature: c.signature,
	}
	if !equal(c.signature, s.sign(algorithm, sum([]byte(canonical)))) {
		return nil, forbidden("SignatureDoesNotMatch", "the signature is not that of this request; check the secret "+
			"access key, and that nothing on the way changes method, path, query or a signed header (%.256s)",
			c.signedHeaders)
	}
	if !equal(c.token, token) {
		return nil, bad("InvalidToken", "X-Amz-Security-Token is not the session token of these credentials; %s", hint)
	}
	if err := s.expect(r); err != nil {
		return nil, err
	}
	return s, nil
}

// claim is what a request says of its signature.
type claim struct {
	presigned                            bool
	credential, signedHeaders, signature string
	token, payload                       string
	time                                 time.Time
	life                                 time.Duration // of a presigned request
}

func (c *claim) malformed(format string, args ...any) error {
	if c.presigned {
		return bad("AuthorizationQueryParametersError", format, args...)
	}
	return bad("AuthorizationHeaderMalformed", format, args...)
}

// claimOf reads the Authorization header or, of a presigned request, the query.
func claimOf(r *http.Request, query []param) (_ *claim, err error) {
	has := func(names ...string) bool {
		return slices.ContainsFunc(query, func(p param) bool { return slices.Contains(names, p.name) })
	}
	c := &claim{presigned: has("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature")}
	authorization := r.Header["Authorization"]
	params := query
	switch {
	case len(authorization) > 1 || len(authorization) == 1 && c.presigned:
		return nil, bad("InvalidArgument", "the request has two signatures; it may have one Authorization header or a "+
			"presigned URL")
	case len(authorization) == 1:
		if params, err = c.inHeaders(r, authorization[0]); err != nil {
			return nil, err
		}
	case has("AWSAccessKeyId"):
		return nil, supported("AWS")
	case !c.presigned:
		return nil, forbidden("AccessDenied", "the request is not signed; %s", hint)
	}
	var scheme, date, expires string
	for _, f := range []struct {
		name   string
		into   *string
		needed bool
	}{
		{"X-Amz-Algorithm", &scheme, true}, {"X-Amz-Credential", &c.credential, true},
		{"X-Amz-SignedHeaders", &c.signedHeaders, true}, {"X-Amz-Signature", &c.signature, true},
		{"X-Amz-Date", &date, true}, {"X-Amz-Expires", &expires, c.presigned},
		{"X-Amz-Security-Token", &c.token, false}, {"X-Amz-Content-Sha256", &c.payload, false},
	} {
		found := 0
		for _, p := range params {
			if p.name == f.name {
				*f.into = p.value
				found++
			}
		}
		if found > 1 || f.needed && *f.into == "" {
			return nil, c.malformed("the signature has to have %s once", strings.TrimPrefix(f.name, "X-Amz-"))
		}
	}
	if err := supported(scheme); err != nil {
		return nil, err
	}
	if c.time, err = time.Parse(stamp, date); err != nil {
		return nil, c.malformed("X-Amz-Date has to be a time such as %s", stamp)
	}
	if c.presigned {
		seconds, _ := strconv.Atoi(expires) // 0, or too large, if it has an error
		if seconds < 1 || seconds > expiresMost {
			return nil, c.malformed("X-Amz-Expires has to be 1 to %d seconds", expiresMost)
		}
		c.life = time.Duration(seconds) * time.Second
	}
	return c, c.payloadFrom(r)
}

// inHeaders returns what the headers say, with the names that presigned URLs have.
func (c *claim) inHeaders(r *http.Request, authorization string) ([]param, error) {
	if len(authorization) > authorizationMost {
		return nil, c.malformed("the Authorization header may have %d bytes", authorizationMost)
	}
	scheme, rest, _ := strings.Cut(authorization, " ")
	if err := supported(scheme); err != nil {
		return nil, err
	}
	params := []param{{"X-Amz-Algorithm", scheme}}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name != "Credential" && name != "SignedHeaders" && name != "Signature" {
			return nil, c.malformed("the Authorization header has to have Credential, SignedHeaders and Signature only")
		}
		params = append(params, param{"X-Amz-" + name, value})
	}
	for _, name := range []string{"X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256"} {
		for _, value := range r.Header[name] {
			params = append(params, param{name, value})
		}
	}
	if r.Header["X-Amz-Date"] == nil {
		date, err := http.ParseTime(r.Header.Get("Date"))
		if err != nil {
			return nil, forbidden("AccessDenied", "the request has no time; send the header x-amz-date")
		}
		params = append(params, param{"X-Amz-Date", date.UTC().Format(stamp)})
	}
	return params, nil
}

// payloadFrom takes the payload's kind from its header, if the query does not have it.
func (c *claim) payloadFrom(r *http.Request) error {
	switch values := r.Header["X-Amz-Content-Sha256"]; {
	case c.payload != "":
	case len(values) > 1:
		return c.malformed("the header x-amz-content-sha256 is repeated")
	case len(values) == 1:
		c.payload = values[0]
	case c.presigned:
		c.payload = unsignedPayload
	default:
		return bad("InvalidRequest", "the header x-amz-content-sha256 is missing")
	}
	return nil
}

// supported refuses all algorithms but one, and names those that clients of S3 can use.
func supported(scheme string) error {
	name := "the signature's algorithm"
	switch scheme {
	case algorithm:
		return nil
	case "AWS4-ECDSA-P256-SHA256":
		name = "Signature Version 4A"
	case "AWS":
		name = "Signature Version 2"
	}
	return bad("InvalidRequest", "%s is not supported; have the client sign with %s", name, algorithm)
}

func (c *claim) timely(now time.Time) error {
	skew := now.Sub(c.time)
	switch {
	case c.presigned && skew > c.life:
		return forbidden("AccessDenied", "Request has expired; have the URL presigned again")
	case c.presigned && skew < -skewMost:
		return forbidden("AccessDenied", "Request is not yet valid; check the clock of the signer")
	case !c.presigned && skew.Abs() > skewMost:
		return forbidden("RequestTimeTooSkewed", "x-amz-date and the server's time (%s) differ by more than %v; check "+
			"the client's clock", now.UTC().Format(stamp), skewMost)
	}
	return nil
}

// scope takes the credential apart.
func (c *claim) scope() (id, region string, err error) {
	parts := strings.Split(c.credential, "/")
	if len(parts) != 5 || parts[3] != "s3" || parts[4] != "aws4_request" {
		return "", "", c.malformed("Credential has to be access key id/date/region/s3/aws4_request; have the client " +
			"sign for the service s3")
	}
	if parts[1] != c.time.Format(day) {
		return "", "", c.malformed("the date in Credential has to be that of X-Amz-Date")
	}
	return parts[0], parts[2], nil
}
