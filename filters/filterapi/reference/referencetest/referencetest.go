// Package referencetest has requests, and the references that templates make of them. Whatever
// expands templates, the gateway's filter or the node's daemon, makes the same of them.
package referencetest

import "strings"

// Case is one request.
type Case struct {
	Name string
	// Template is as reference.ParseTemplate reads it.
	Template string
	// Target is the request's path and query.
	Target string
	// Header are names in lower case and values.
	Header [][2]string
	// Want is the reference, empty if the request names no input.
	Want string
	// Field and Says are of a refusal: which field it names, and part of what it says.
	Field, Says string
}

const (
	camera = "/videos/{camera}/{frame} s3://videos/{path.camera}/{path.frame}.mjpeg"
	rest   = "/files/{+key} s3://videos/{path.key|urldecode}"
	query  = "s3://videos/{query.key|urldecode}"
	event  = "s3://videos/{header.ce-subject|urldecode|trimprefix:objects/}"
)

// Cases are all of them.
var Cases = []Case{
	{
		Name: "headers", Template: "s3://{header.x-bucket}/{header.x-key}", Target: "/",
		Header: [][2]string{{"x-bucket", "videos"}, {"x-key", "a b/ü%2F..c"}}, Want: "s3://videos/a b/ü%2F..c",
	},
	{Name: "no header", Template: "s3://videos/{header.x-key}", Target: "/?x-key=a"},
	{
		Name: "a header twice", Template: "s3://videos/{header.x-key}", Target: "/",
		Header: [][2]string{{"x-key", "a"}, {"x-key", "a"}}, Field: "header x-key", Says: "more than once",
	},

	{Name: "a path", Template: camera, Target: "/videos/c1/7", Want: "s3://videos/c1/7.mjpeg"},
	{Name: "a path and a query", Template: camera, Target: "/videos/c1/7?camera=c2", Want: "s3://videos/c1/7.mjpeg"},
	{Name: "another path", Template: camera, Target: "/healthz"},
	{Name: "a longer path", Template: camera, Target: "/videos/c1/7/8"},
	{Name: "a path that ends with a slash", Template: camera, Target: "/videos/c1/7/"},
	{Name: "a segment that is empty", Template: camera, Target: "/videos//7"},
	{
		Name: "a path is not decoded", Template: camera, Target: "/videos/c%201/7%2F8",
		Want: "s3://videos/c%201/7%2F8.mjpeg",
	},
	{
		Name: "a path that climbs", Template: camera, Target: "/videos/../7", Field: "path",
		Says: `the path segment ".."`,
	},
	{Name: "all that is left of a path", Template: rest, Target: "/files/a/b%20c+d", Want: "s3://videos/a/b c+d"},
	{Name: "nothing is left of a path", Template: rest, Target: "/files/"},
	{
		Name: "a path climbs once decoded", Template: rest, Target: "/files/a/%2e%2E/b", Field: "path",
		Says: `the path segment ".."`,
	},
	{Name: "a path is decoded once", Template: rest, Target: "/files/%252e%252e/b", Want: "s3://videos/%2e%2e/b"},
	{
		Name: "a path begins with a slash once decoded", Template: rest, Target: "/files/%2Fa", Field: "path",
		Says: "begins with a slash",
	},
	{
		Name: "a slash in a segment", Template: "/v/{a}/{b} s3://videos/{path.a|urldecode}/{path.b}",
		Target: "/v/c%2Fd/e", Field: "path", Says: "a slash that is encoded",
	},
	{
		Name: "a bucket from the path", Template: "/{tenant}/{+key} s3://{path.tenant}/{path.key}",
		Target: "/videos/a/b", Want: "s3://videos/a/b",
	},
	{
		Name: "a slash in a bucket", Template: "/{tenant}/{+key} s3://{path.tenant|urldecode}/{path.key}",
		Target: "/other%2Fvideos/a", Field: "path", Says: "a slash that is encoded",
	},
	{
		Name: "half of it", Template: "/v/{a} s3://videos/{path.a}/{header.x-key}", Target: "/v/c",
		Field: "header x-key", Says: "is missing",
	},
	{
		Name: "the other half", Template: "/v/{a} s3://videos/{path.a}/{header.x-key}", Target: "/w/c",
		Header: [][2]string{{"x-key", "b"}}, Field: "path", Says: "is not of the form",
	},

	{Name: "a query", Template: query, Target: "/?a=b&key=c%2Fd", Want: "s3://videos/c/d"},
	{
		Name: "a plus sign is a space in a query", Template: query, Target: "/?key=red+flower%2B.jpg",
		Want: "s3://videos/red flower+.jpg",
	},
	{
		Name: "a plus sign stays without decoding", Template: "s3://videos/{query.key}", Target: "/?key=a+b%20c",
		Want: "s3://videos/a+b%20c",
	},
	{Name: "a query of another name", Template: query, Target: "/?keys=a&Key=b&xkey=c&%6bey=d"},
	{Name: "no query", Template: query, Target: "/key=a"},
	{Name: "a query twice", Template: query, Target: "/?key=a&key=b", Field: "query key", Says: "more than once"},
	{
		Name: "a query twice, once encoded", Template: query, Target: "/?%6bey=b&key=a", Field: "query key",
		Says: "more than once",
	},
	{Name: "a query without a value", Template: query, Target: "/?key", Field: "query key", Says: "is empty"},
	{
		Name: "a query that climbs", Template: query, Target: "/?key=a/%2e./b", Field: "query key",
		Says: `the path segment ".."`,
	},
	{
		Name: "a query with a line end", Template: query, Target: "/?key=a%0d%0ax-headstart-function:%20b",
		Field: "query key", Says: "control characters",
	},
	{
		Name: "a query with a zero", Template: query, Target: "/?key=a%00", Field: "query key",
		Says: "control characters",
	},
	{Name: "a query that is not UTF-8", Template: query, Target: "/?key=%ff", Field: "query key", Says: "not UTF-8"},
	{
		Name: "a query that is overlong UTF-8", Template: query, Target: "/?key=%c0%ae%c0%ae/b", Field: "query key",
		Says: "not UTF-8",
	},
	{Name: "half an escape", Template: query, Target: "/?key=a%2", Field: "query key", Says: "hexadecimal digits"},
	{Name: "no escape", Template: query, Target: "/?key=%zz", Field: "query key", Says: "hexadecimal digits"},
	{
		Name: "a decoded query that is too long", Template: query, Target: "/?key=" + strings.Repeat("a", 1025),
		Field: "query key", Says: "longer than 1024 bytes",
	},
	{
		Name: "a decoded space at the end", Template: query, Target: "/?key=a%20", Field: "query key",
		Says: "ends with a space",
	},
	{
		Name: "a bucket from a query", Template: "s3://{query.bucket|urldecode}/{query.key}",
		Target: "/?bucket=vid%65os&key=a", Want: "s3://videos/a",
	},
	{
		Name: "a bucket with a slash", Template: "s3://{query.bucket|urldecode}/{query.key}",
		Target: "/?bucket=videos%2Fb&key=a", Field: "query bucket", Says: "is not a bucket name",
	},
	{
		Name: "a host with a user", Template: "https://{query.host|urldecode}/k", Target: "/?host=me%40models",
		Field: "query host", Says: "is not a bucket name",
	},

	{
		Name: "an event", Template: event, Target: "/",
		Header: [][2]string{{"ce-subject", "objects/c%C3%A4m%201/a+b.mjpeg"}}, Want: "s3://videos/cäm 1/a+b.mjpeg",
	},
	{
		Name: "an event without the prefix", Template: event, Target: "/",
		Header: [][2]string{{"ce-subject", "cam/objects/a"}}, Want: "s3://videos/cam/objects/a",
	},
	{
		Name: "an event that climbs by its prefix", Template: event, Target: "/",
		Header: [][2]string{{"ce-subject", "objects/../a"}}, Field: "header ce-subject", Says: `the path segment ".."`,
	},
	{
		Name: "nothing but the prefix", Template: event, Target: "/", Header: [][2]string{{"ce-subject", "objects/"}},
		Field: "header ce-subject", Says: "is empty",
	},
	{
		Name: "modifiers in their order", Template: "s3://videos/{header.a|trimprefix:%61/|urldecode|trimprefix:b/}",
		Target: "/", Header: [][2]string{{"a", "%61/b%2Fc"}}, Want: "s3://videos/c",
	},
	{
		Name: "braces are text", Template: query, Target: "/?key={header.host}%7Bquery.key%7D|urldecode",
		Want: "s3://videos/{header.host}{query.key}|urldecode",
	},
}
