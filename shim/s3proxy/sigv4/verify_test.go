package sigv4_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// statuses are those of S3's error codes.
var statuses = map[string]int{
	"AccessDenied": 403, "InvalidAccessKeyId": 403, "SignatureDoesNotMatch": 403, "RequestTimeTooSkewed": 403,
	"InvalidChunkSizeError": 403, "AuthorizationHeaderMalformed": 400, "AuthorizationQueryParametersError": 400,
	"InvalidArgument": 400, "InvalidRequest": 400, "InvalidToken": 400, "InvalidURI": 400, "IncompleteBody": 400,
	"XAmzContentSHA256Mismatch": 400, "MalformedTrailerError": 400, "MissingContentLength": 411,
}

// refused fails unless an error is a refusal with this code, whose message has a word and none of the secrets.
func refused(t *testing.T, err error, code, word string, secrets ...string) {
	t.Helper()
	var e *sigv4.Error
	if !errors.As(err, &e) || e.Code != code || e.Status != statuses[code] || !strings.Contains(e.Message, word) {
		t.Fatalf("it is refused with %#v, and not with %s that names %q", err, code, word)
	}
	for _, s := range secrets {
		if s != "" && strings.Contains(err.Error(), s) {
			t.Errorf("a secret is in %v", err)
		}
	}
}

// edited is a request with one thing changed before it is signed.
func edited(s *signing, edit func(*signing)) string {
	edit(s)
	return s.raw()
}

// scope is a request with another scope.
func scope(c string) string { return edited(inHeader(), func(s *signing) { s.scope = c }) }

// Everything that makes a signature worthless is refused, although the signature itself is right.
func TestRefused(t *testing.T) {
	const header, query = "AuthorizationHeaderMalformed", "AuthorizationQueryParametersError"
	fields := func(f string) string { return edited(inHeader(), func(s *signing) { s.fields = f }) }
	scheme := func(n string) string { return edited(inHeader(), func(s *signing) { s.scheme = n }) }
	payload := func(p string) string { return inHeader().change("UNSIGNED-PAYLOAD", p).raw() }
	many := func(s *signing) {
		for i := range 98 {
			s.header(fmt.Sprintf("Z-%03d", i), "v")
		}
	}
	twice := func(name, value string) func(s *signing) {
		return func(s *signing) {
			s.sent = append(s.sent, name+": "+value)
			n := strings.ToLower(name)
			s.headers = strings.Replace(s.headers, n+":"+value, n+":"+value+","+value, 1)
		}
	}
	const chunks = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	for name, c := range map[string]struct{ request, code, word string }{
		"no signature": {
			lines("GET /b/k HTTP/1.1", "Host: h"), "AccessDenied", "the credentials that the SDK finds by itself",
		},
		"two signatures": {
			strings.Replace(exampleGet, "Range:", "Authorization: x\r\nRange:", 1), "InvalidArgument",
			"Authorization",
		},
		"header and query": {
			edited(inHeader(), func(s *signing) { s.target += "?X-Amz-Signature=x" }), "InvalidArgument",
			"presigned",
		},
		"header and query 2": {
			edited(inHeader(), func(s *signing) { s.target += "?X-Amz-Algorithm=x" }), "InvalidArgument",
			"presigned",
		},
		"header and query 3": {
			edited(inHeader(), func(s *signing) { s.target += "?X-Amz-Credential=x" }), "InvalidArgument",
			"presigned",
		},

		"another algorithm": {scheme("AWS4-HMAC-SHA512"), "InvalidRequest", "AWS4-HMAC-SHA256"},
		"Version 2": {
			lines("GET /b/k HTTP/1.1", "Host: h", "Authorization: AWS a:b"), "InvalidRequest", "Version 2 ",
		},
		"Version 2, presigned": {
			lines("GET /b/k?AWSAccessKeyId=a&Signature=b HTTP/1.1", "Host: h"), "InvalidRequest", "Version 2 ",
		},
		"Version 4A": {scheme("AWS4-ECDSA-P256-SHA256"), "InvalidRequest", "Version 4A"},
		"Version 4A, presigned": {
			presigned("X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256").raw(), "InvalidRequest", "Version 4A",
		},
		"a password": {scheme("Basic"), "InvalidRequest", "AWS4-HMAC-SHA256"},

		"no credential":       {fields("SignedHeaders=%[2]s,Signature=%[3]s"), header, "Credential"},
		"an empty credential": {fields("Credential=,SignedHeaders=%[2]s,Signature=%[3]s"), header, "Credential"},
		"no signed headers":   {fields("Credential=%[1]s,Signature=%[3]s"), header, "SignedHeaders"},
		"a scheme only":       {fields(""), header, "Credential"},
		"no Signature":        {fields("Credential=%[1]s,SignedHeaders=%[2]s"), header, "Signature"},
		"two credentials": {
			fields("Credential=%[1]s,SignedHeaders=%[2]s,Signature=%[3]s,Credential=%[1]s"), header, "Credential",
		},
		"another field": {
			fields("Credential=%[1]s,SignedHeaders=%[2]s,Signature=%[3]s,Expires=60"), header, "only",
		},
		"a date among them": {
			fields("Credential=%[1]s,SignedHeaders=%[2]s,Signature=%[3]s,Date=20130524T000000Z"), header, "only",
		},
		"a long Authorization": {
			edited(inHeader(), func(s *signing) { s.pad(4097) }), header, "4096",
		},
		"101 signed headers": {edited(inHeader(), many), header, "100"},
		"headers not sorted": {edited(inHeader(), func(s *signing) { s.header("Accept", "x") }), header, "sorted"},
		"a header signed twice": {
			edited(inHeader().header("Z", "1"), func(s *signing) { s.header("Z", "1") }), header, "once",
		},
		"a header in upper case": {
			edited(inHeader().header("zz", "1"), func(s *signing) {
				s.names = strings.Replace(s.names, "zz", "zZ", 1)
			}), header, "lower case",
		},
		"a header that is not there": {
			edited(inHeader().header("Z", ""), func(s *signing) { s.sent = s.sent[:3] }),
			"SignatureDoesNotMatch", `"z"`,
		},
		"host not signed": {
			edited(inHeader(), func(s *signing) {
				s.headers, s.names = s.headers[len("host:h\n"):], s.names[len("host;"):]
			}),
			"AccessDenied", `"host"`,
		},
		"an S3 header not signed": {
			inHeader().send("X-Amz-Acl: public-read").raw(), "AccessDenied", `"x-amz-acl"`,
		},
		"one that has the payload's kind": {
			inHeader().send("X-Amz-Meta-A: UNSIGNED-PAYLOAD").raw(),
			"AccessDenied", `"x-amz-meta-a"`,
		},
		"an S3 header not signed, presigned": {
			presigned().send("X-Amz-Copy-Source: /b/other").raw(),
			"AccessDenied", `"x-amz-copy-source"`,
		},
		"another payload than signed, presigned": {
			presigned("X-Amz-Content-Sha256=UNSIGNED-PAYLOAD").send("X-Amz-Content-Sha256: " + chunks).raw(),
			"AccessDenied", `"x-amz-content-sha256"`,
		},

		"four parts of a scope": {scope("20130524/us-east-1/s3"), header, "s3/aws4_request"},
		"six parts of a scope":  {scope("20130524/us-east-1/s3/aws4_request/x"), header, "s3/aws4_request"},
		"another service":       {scope("20130524/us-east-1/s3express/aws4_request"), header, "s3"},
		"another terminator":    {scope("20130524/us-east-1/s3/aws4"), header, "aws4_request"},
		"another day":           {scope("20130523/us-east-1/s3/aws4_request"), header, "date"},
		"another day, presigned": {
			presigned("X-Amz-Credential=" + exampleID + "%2F20130523%2Fus-east-1%2Fs3%2Faws4_request").raw(),
			query, "date",
		},

		"no time": {
			edited(inHeader(), func(s *signing) { s.sent = []string{s.sent[0], s.sent[2]} }), "AccessDenied",
			"x-amz-date",
		},
		"a wrong time": {
			edited(inHeader(), func(s *signing) { s.sent[1] = "X-Amz-Date: 2013-05-24T00:00:00Z" }), header,
			"X-Amz-Date",
		},
		"an empty time": {edited(inHeader(), func(s *signing) { s.sent[1] = "X-Amz-Date:" }), header, "Date"},
		"a wrong Date": {
			edited(inHeader(), func(s *signing) { s.sent[1] = "Date: today" }), "AccessDenied", "x-amz-date",
		},
		"two times": {edited(inHeader(), twice("X-Amz-Date", "20130524T000000Z")), header, "Date"},

		"no payload": {
			edited(inHeader(), func(s *signing) { s.sent = s.sent[:2] }), "InvalidRequest", "x-amz-content-sha256",
		},
		"an empty payload": {payload(""), "InvalidArgument", "x-amz-content-sha256"},
		"two payloads": {
			edited(inHeader(), twice("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")), header, "Content-Sha256",
		},
		"upper-case hex":       {payload(strings.ToUpper(ofNothing)), "InvalidArgument", "lower-case"},
		"63 digits":            {payload(ofNothing[1:]), "InvalidArgument", "SHA-256"},
		"no digits":            {payload(strings.Repeat("g", 64)), "InvalidArgument", "SHA-256"},
		"events":               {payload("STREAMING-AWS4-HMAC-SHA256-EVENTS"), "InvalidArgument", chunks},
		"Version 4A's payload": {payload("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), "InvalidRequest", "Version 4A"},
		"Version 4A's trailers": {
			payload("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER"), "InvalidRequest", "Version 4A",
		},
		"two payloads, presigned": {
			presigned().send("X-Amz-Content-Sha256: UNSIGNED-PAYLOAD", "X-Amz-Content-Sha256: "+chunks).raw(),
			query, "x-amz-content-sha256",
		},

		"no length": {
			inHeader().send("Transfer-Encoding: chunked").raw(),
			"MissingContentLength", "content-length",
		},
		"no decoded length": {payload(chunks), "MissingContentLength", "x-amz-decoded-content-length"},
		"a negative length": {streaming(chunks, -1).raw(), "InvalidArgument", "x-amz-decoded-content-length"},
		"a length of words": {
			streaming(chunks, 77).change("77", "7 k").raw(), "InvalidArgument", "x-amz-decoded-content-length",
		},
		"two lengths": {
			edited(streaming(chunks, 7), twice("X-Amz-Decoded-Content-Length", "7")), "InvalidArgument",
			"x-amz-decoded-content-length",
		},

		"a wrong name in the query": {
			edited(inHeader(), func(s *signing) { s.target += "?%zz=1" }), "InvalidURI", "percent",
		},
		"a wrong value in the query": {
			edited(inHeader(), func(s *signing) { s.target += "?a=%f" }), "InvalidURI", "percent",
		},
		"a long query": {
			edited(inHeader(), func(s *signing) {
				s.query = "a=" + strings.Repeat("b", 32<<10-1)
				s.target += "?" + s.query
			}), "InvalidURI", "32768",
		},

		"no algorithm, presigned":      {presigned("X-Amz-Algorithm").raw(), query, "Algorithm"},
		"no credential, presigned":     {presigned("X-Amz-Credential").raw(), query, "Credential"},
		"no date, presigned":           {presigned("X-Amz-Date").raw(), query, "Date"},
		"no expiry, presigned":         {presigned("X-Amz-Expires").raw(), query, "Expires"},
		"no signed headers, presigned": {presigned("X-Amz-SignedHeaders").raw(), query, "SignedHeaders"},
		"no signature, presigned": {
			strings.Replace(examplePresigned, "&X-Amz-Signature=", "&X-Amz-Signatures=", 1), query, "Signature",
		},
		"two signatures, presigned": {
			strings.Replace(examplePresigned, "&X-Amz-Signature=", "&X-Amz-Signature=&X-Amz-Signature=", 1), query,
			"Signature",
		},
		"two tokens, presigned": {
			presigned("+X-Amz-Security-Token=", "+X-Amz-Security-Token=").raw(), query, "Security-Token",
		},
		"a wrong time, presigned":       {presigned("X-Amz-Date=today").raw(), query, "X-Amz-Date"},
		"no life, presigned":            {presigned("X-Amz-Expires=0").raw(), query, "604800"},
		"a life of words, presigned":    {presigned("X-Amz-Expires=1h").raw(), query, "604800"},
		"more than a week, presigned":   {presigned("X-Amz-Expires=604801").raw(), query, "604800"},
		"the past, presigned":           {presigned("X-Amz-Expires=-1").raw(), query, "604800"},
		"a life without end, presigned": {presigned("X-Amz-Expires=99999999999999999999").raw(), query, "604800"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := sigv4.Verify(parsed(t, c.request), exampleTime, exampleKeys)
			if err == nil {
				t.Fatalf("it is signed by %+v", s)
			}
			refused(t, err, c.code, c.word, exampleSecret)
		})
	}
}

// What clients are free to do is accepted.
func TestAccepted(t *testing.T) {
	target := func(sent, path, query string) string {
		return edited(inHeader(), func(s *signing) { s.target, s.path, s.query = sent, path, query })
	}
	// sent sends a header otherwise than it is signed.
	sent := func(name, signed string, values ...string) string {
		return edited(inHeader().header(name, signed), func(s *signing) {
			s.sent = s.sent[:3]
			for _, v := range values {
				s.sent = append(s.sent, name+": "+v)
			}
		})
	}
	long := strings.Repeat("b", 32<<10-len("a="))
	for name, request := range map[string]string{
		"no path": target("http://h", "/", ""),
		"a path with all of ASCII": target("/b/%20!$&'()*+,-.0:;=@A_a~%22%23%25%3f%5C%7e",
			"/b/%20%21%24%26%27%28%29%2A%2B%2C-.0%3A%3B%3D%40A_a~%22%23%25%3F%5C~", ""),
		"dots and slashes":        target("/b//a/./../x//", "/b//a/./../x//", ""),
		"two slashes first":       target("//b/k", "//b/k", ""),
		"an encoded slash":        target("/b/a%2fb", "/b/a/b", ""),
		"a//b of Java's SDK":      target("/b/a/%2Fb", "/b/a//b", ""),
		"an encoded percent sign": target("/b/%2520%252F", "/b/%2520%252F", ""),
		"UTF-8":                   target("/b/ü", "/b/%C3%BC", ""),
		"a query without values":  target("/b?acl", "/b", "acl="),
		"names and values sorted": target("/b?a-b=1&a=2&a=1&A=3", "/b", "A=3&a=1&a=2&a-b=1"),
		"sorted once encoded":     target("/b?a=b-&a=b/&a%5B=&aZ=", "/b", "a=b%2F&a=b-&a%5B=&aZ="),
		"a plus sign is a space":  target("/b?p=a+b%2B", "/b", "p=a%20b%2B"),
		"a semicolon":             target("/b?p=a;b", "/b", "p=a%3Bb"),
		"a question mark":         target("/b?p=a?b=c", "/b", "p=a%3Fb%3Dc"),
		"32 KiB":                  target("/b?a="+long, "/b", "a="+long),
		"a parameter X-Amz-Date":  target("/b?X-Amz-Date=x", "/b", "X-Amz-Date=x"),

		"spaces around and in a value": sent("Z", "a b c", " \t a  b \t c "),
		"a header twice":               sent("Z", "a,b c,", "a", " b  c", ""),
		"a header in UTF-8":            sent("Z", "ü\u00a0\u00a0x", "ü\u00a0\u00a0x"),
		"Expect":                       edited(inHeader().send("Expect: 100-continue"), expect),
		"Expect in another case": edited(inHeader().send("Expect: 100-Continue"), func(s *signing) {
			expect(s)
			s.change("100-continue", "100-Continue")
		}),
		"Expect, which HTTP/2 removes": edited(inHeader(), expect),
		"a length": edited(inHeader(), func(s *signing) {
			s.headers, s.names = "content-length:5\n"+s.headers, "content-length;"+s.names
			s.method, s.body = "PUT", "hello"
		}),
		"a transfer encoding": edited(streaming("STREAMING-UNSIGNED-PAYLOAD-TRAILER", 0), func(s *signing) {
			s.headers = strings.Replace(s.headers, "x-amz", "transfer-encoding:chunked\nx-amz", 1)
			s.names = strings.Replace(s.names, "x-amz", "transfer-encoding;x-amz", 1)
			s.sent = append(s.sent, "Transfer-Encoding: chunked")
		}),
		"a payload that is not signed as a header": edited(inHeader(), func(s *signing) {
			s.headers, s.names = "host:h\nx-amz-date:20130524T000000Z\n", "host;x-amz-date"
		}),
		"Date": edited(inHeader(), func(s *signing) {
			s.headers, s.names = "host:h\nx-amz-content-sha256:UNSIGNED-PAYLOAD\n", "host;x-amz-content-sha256"
			s.sent[1] = "Date: Fri, 24 May 2013 00:00:00 GMT"
		}),
		"another order": edited(inHeader(), func(s *signing) {
			s.fields = "Signature=%[3]s,Credential=%[1]s,SignedHeaders=%[2]s"
		}),
		"any region":             scope("20130524/mars-north-7/s3/aws4_request"),
		"4 KiB of Authorization": edited(inHeader(), func(s *signing) { s.pad(4096) }),
		"100 headers":            edited(inHeader(), func(s *signing) { hundred(s) }),
		"a presigned URL":        presigned().raw(),
		"a week":                 presigned("X-Amz-Expires=604800").raw(),
		"presigned, acl":         presigned("+acl=").raw(),
		"presigned, UTF-8":       presigned("+x=%C3%BC%20").raw(),
		"a presigned URL that says what the payload is": presigned("X-Amz-Content-Sha256=UNSIGNED-PAYLOAD").raw(),
		"which the client repeats": presigned("X-Amz-Content-Sha256=UNSIGNED-PAYLOAD").
			send("X-Amz-Content-Sha256: UNSIGNED-PAYLOAD").raw(),
		"or only the client": presigned().send("X-Amz-Content-Sha256: UNSIGNED-PAYLOAD").raw(),
		"a SHA-256 in a presigned URL": edited(presigned().change("UNSIGNED-PAYLOAD", ofNothing), func(s *signing) {
			s.presign("X-Amz-Content-Sha256=" + ofNothing)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := parsed(t, request)
			if name == "Expect, which HTTP/2 removes" {
				r.Header.Del("Expect")
			}
			if s, err := sigv4.Verify(r, exampleTime, exampleKeys); err != nil || s.AccessKeyID != exampleID {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func expect(s *signing) {
	s.headers, s.names = "expect:100-continue\n"+s.headers, "expect;"+s.names
}

func hundred(s *signing) {
	for i := range 97 {
		s.header(fmt.Sprintf("Z-%03d", i), "v")
	}
}

// The caller learns the region that the client has signed for.
func TestSigned(t *testing.T) {
	got, err := sigv4.Verify(parsed(t, scope("20130524/mars-north-7/s3/aws4_request")), exampleTime, exampleKeys)
	if err != nil || got.Region != "mars-north-7" || got.Presigned || got.ContentSHA256 != "UNSIGNED-PAYLOAD" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A client's clock may be wrong by 15 minutes. A presigned URL lives as long as it says.
func TestTime(t *testing.T) {
	header := inHeader().raw()
	query, week := presigned("X-Amz-Expires=60").raw(), presigned("X-Amz-Expires=604800").raw()
	for _, c := range []struct {
		request    string
		after      time.Duration
		code, word string
	}{
		{header, 15 * time.Minute, "", ""}, {header, -15 * time.Minute, "", ""},
		{header, 15*time.Minute + time.Second, "RequestTimeTooSkewed", "20130524T001501Z"},
		{header, -15*time.Minute - time.Second, "RequestTimeTooSkewed", "clock"},
		{week, 7 * 24 * time.Hour, "", ""}, {week, 7*24*time.Hour + time.Second, "AccessDenied", "Request has expired"},
		{query, time.Minute, "", ""}, {query, time.Minute + time.Second, "AccessDenied", "Request has expired"},
		{query, -15 * time.Minute, "", ""}, {query, -15*time.Minute - time.Second, "AccessDenied", "not yet valid"},
	} {
		_, err := sigv4.Verify(parsed(t, c.request), exampleTime.Add(c.after), exampleKeys)
		if c.code == "" && err != nil {
			t.Errorf("%v afterwards it is refused: %v", c.after, err)
		} else if c.code != "" {
			refused(t, err, c.code, c.word)
		}
	}
}

// A client without the secret or the token is refused, and the error has neither.
func TestKeys(t *testing.T) {
	const token = "FwoGZXIvYXdzEXAMPLE"
	s := inHeader()
	s.sent = append(s.sent, "X-Amz-Security-Token: "+token)
	s.headers += "x-amz-security-token:" + token + "\n"
	s.names += ";x-amz-security-token"
	header, headerNone := s.raw(), inHeader().raw()
	query, queryNone := presigned("X-Amz-Security-Token="+token).raw(), presigned().raw()
	for _, c := range []struct{ request, secret, token, code string }{
		{header, exampleSecret, token, ""}, {query, exampleSecret, token, ""},
		{headerNone, exampleSecret, "", ""}, {queryNone, exampleSecret, "", ""},
		{header, "another", token, "SignatureDoesNotMatch"}, {query, "another", token, "SignatureDoesNotMatch"},
		{header, exampleSecret, "another", "InvalidToken"}, {query, exampleSecret, "another", "InvalidToken"},
		{header, exampleSecret, "", "InvalidToken"}, {query, exampleSecret, "", "InvalidToken"},
		{headerNone, exampleSecret, token, "InvalidToken"}, {queryNone, exampleSecret, token, "InvalidToken"},
		{header, "", "", "InvalidAccessKeyId"}, {query, "", "", "InvalidAccessKeyId"},
	} {
		_, err := sigv4.Verify(parsed(t, c.request), exampleTime, func(id string) (string, string, bool) {
			return c.secret, c.token, c.secret != "" && id == exampleID
		})
		if c.code == "" && err != nil {
			t.Errorf("%+v is refused: %v", c, err)
		} else if c.code != "" {
			refused(t, err, c.code, "", c.secret, token, c.token, s.signature())
		}
	}
}

// One bit of a request is not changed without its meaning the same, or its being refused.
func TestEveryBitIsSigned(t *testing.T) {
	put := inHeader().change("UNSIGNED-PAYLOAD", hashOf("hello")).header("X-Amz-Meta-A", "a b")
	rich := edited(put, func(s *signing) {
		s.method, s.body = "PUT", "hello"
		s.target = "/b/odd%20key/%C3%BC%20+&=%2520.bin?x=a%2Fb&acl"
		s.path, s.query = "/b/odd%20key/%C3%BC%20%2B%26%3D%2520.bin", "acl=&x=a%2Fb"
		s.sent[3] = "X-Amz-Meta-A:  a  b"
	})
	for name, request := range map[string]string{
		"rich": rich, "GET": exampleGet, "PUT": examplePut, "presigned": examplePresigned,
	} {
		t.Run(name, func(t *testing.T) {
			want, err := meaning(request, exampleTime, exampleKeys)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 8 * len(request) {
				flipped := []byte(request)
				flipped[i/8] ^= 1 << (i % 8)
				if got, err := meaning(string(flipped), exampleTime, exampleKeys); err == nil && got != want {
					t.Errorf("%q\nis accepted as %q\nand not as %q", flipped, got, want)
				}
			}
		})
	}
}

// meaning is what a request asks for. Its error is that of a request that is refused.
func meaning(raw string, now time.Time, keys sigv4.Keys) (string, error) {
	r, err := parse(raw)
	if err != nil {
		return "", err
	}
	s, err := sigv4.Verify(r, now, keys)
	if err != nil {
		return "", err
	}
	payload := s.Body(r.Body)
	body, err := io.ReadAll(payload)
	if err != nil {
		return "", err
	}
	query := r.URL.Query()
	query.Del("X-Amz-Signature")
	headers := ""
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if strings.HasPrefix(name, "X-Amz-") || name == "Range" {
			headers += name + ":" + strings.Join(strings.Fields(strings.Join(r.Header[name], ",")), " ") + "\n"
		}
	}
	return fmt.Sprintf("%s %s %s?%s\n%s\n%s\n%v %s %s %v %s", r.Method, r.Host, r.URL.Path, query.Encode(), headers,
		body, payload.Trailer(), s.AccessKeyID, s.Region, s.Presigned, s.ContentSHA256), nil
}
