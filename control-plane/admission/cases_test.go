package admission_test

import (
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/admission"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// The operator's stores, for both sides.
var (
	allowed = stores.Stores{
		{Name: "default", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"videos", "models"}},
		{Name: "archive", Kind: "s3", Endpoint: "https://s3.example.com", Buckets: []string{"old"}, Namespaces: []string{"default", "other"}},
		{Name: "jobs", Kind: "redis", Endpoint: "redis:6379", Buckets: []string{"jobs"}},
		{Name: "web", Kind: "http", Buckets: []string{"www.example.com", "a:80"}},
		{Name: "private", Kind: "http", Buckets: []string{"a"}, Secret: "private"},
	}
	allowedCEL = admission.Stores(`[{"name": ["default"], "schemes": ["s3"], "buckets": ["videos", "models"], "namespaces": []}, {"name": ["archive"], "schemes": ["s3"], "buckets": ["old"], "namespaces": ["default", "other"]},
		{"name": ["jobs"], "schemes": ["redis"], "buckets": ["jobs"], "namespaces": []}, {"name": ["web"], "schemes": ["https", "http"], "buckets": ["www.example.com", "a:80"], "namespaces": []},
		{"name": ["private"], "schemes": ["https"], "buckets": ["a"], "namespaces": []}]`)

	allowedDestinations = destinations.Destinations{{Name: "orders"}, {Name: "sessions", Namespaces: []string{"default", "other"}}}
	destinationsCEL     = admission.Destinations(`[{"name": ["orders"], "namespaces": []}, {"name": ["sessions"], "namespaces": ["default", "other"]}]`)
)

// values are seeds of each kind: good ones, bad ones, and those at the edges.
var (
	durations = []string{
		"1s", "999ms", "999.9999999ms", "1000ms", "1000000us", "1000000µs", "1000000μs", "1000000000ns", "999999999ns", "24h", "24h1ns", "86400s",
		"86400.0000000001s", "86400.000000001s", "10m", "10m1ns", "600s", "+5s", "-5s", "1h30m", ".5m", "5.m", ".s", "", "0", "+0", "30", "30 s",
		"1e3s", "0x1s", "s", "1", "00000000000000000000000000000030s", "000000000000000000000000000030s", "99999999999999999999h", "9223372036854775807ns", "1S",
		"1d", "1.5.5s", "1s1s1s", "30s\n", "\n30s", "½s", "00000000000000000000000000030µs", "0000000000000000000000000030000000µs",
	}
	quantities = []string{
		"1", "0", "0.5", "1.0", "1.", ".5k", "1.k", "1.5", "0001", "512Mi", "512m", "2000m", "1000m", "1m", "0m", "5Gi", "5368709120", "5368709121", "5368709120.0", "5368709120.5",
		"5.0000000001Gi", "5.000000000931322574615478515Gi", "4.999999999068677425384521484375Gi", "4.99999999906867742538452148437Gi", "6Gi", "1.5Gi", "0.3Gi", "0.3Ki", "0.5Ki", "0.0009765625Ki", "0.00048828125Ki", "0.00048828125Mi", ".00000000186264514923095703125Gi", ".00000000186264514923095703124Gi",
		"1e3", "1E3", "1e+3", "1E+3", "2000e-3", "2001e-3", "1e", "1E", "1e9", "5e9", "6e9", "5.36870912e9", "5.368709121e9", "5.3687091201e9", "1e18", "1e19", "1e-19", "0e19", "1e0000003", "1e-0", "1.5e1", "1.55e1",
		"5368709120000m", "5368709120001m", "5368709121000m", "1000000000n", "1000000u", "1n", "1000001u", "0.001T", "0.0001P", "0.0000001E", "0.005368709120T", "0.0053687091201T", "0.005368709121T", ".0009765625Ti", ".0048828125Ti", "0.00000095367431640625Pi",
		"1.0000000000000001Gi", "1.00000000000000000001Ki", "lots", "", "-1", "+1", "1 Mi", "1MB", "1mi", "1K", ".", "0x10", "1_000", "i", "Ki", ".Ki", "1i", "1Kii", "100000000000000000000000000000000",
		"00000000000000000000000000000001", "000000000000000000000000000000001", "1e999999999999999999999", "1\n", "１", "1.5e-1", "10e-1", "15e-1", "0e-3", "0.0", ".0", ".0Ki",
	}
	names      = []string{"default", "archive", "jobs", "web", "private", "nowhere", "", "a", "-a", "a-", "A", "a.b", "a_b", "http://10.0.0.1", strings.Repeat("a", 63), strings.Repeat("a", 64), "default\n", "ä"}
	references = []string{
		"s3://videos/{header.x-key}", "s3://videos/a", "s3://models/a b/c", "s3://old/a", "s3://{header.x-bucket}/{header.x-key}", "s3://private/a", "",
		"body", "Body", "body ", "bodys", "/body", "s3://body", "/etc/passwd", "S3://videos/a", "s3://videos", "s3://videos/", "s3:///a", "s3:// /a", "s3://me:pw@videos/a", "http://me:pw@videos/a", "me@videos", "s3://videos/a@b",
		"s3://{header.x@y}/a", "s3://videos/../{header.x-key}", "s3://videos/..", "s3://videos/.", "s3://videos/a/./b", "s3://videos/.../b", "s3://videos/.{header.a}", "s3://videos/a/..b",
		"s3://videos//a", "s3://videos/a//b", "s3://videos/a ", "s3://videos/ a", "s3://videos/{header.a} ", "s3://videos/a\tb", "s3://videos/a\u0085b", "s3://videos/a\n", "s3://videos/ä", "s3://videos/a\u200bb",
		"s3://videos/{key}", "s3://videos/{header.}", "s3://videos/{header.X-Key}", "s3://videos/{header.x key}", "s3://videos/{header.:path}", "s3://videos/{header.host}", "s3://videos/{header.hosts}",
		"s3://videos/{header.cookie}", "s3://videos/{header.cookie2}", "s3://videos/{header.authorization}", "s3://videos/{header.proxy-authorization}", "s3://videos/{header.x-headstart-request}", "s3://videos/{header.x-headstart}", "s3://{header.host}/a", "s3://{header.x-headstart-a}/a",
		"s3://videos/{header.a", "s3://videos/header.a}", "s3://videos/}{", "s3://videos/{{header.a}}",
		"s3://videos/{}", "s3://videos/{header.a}{header.b}", "s3://videos/{header.a!#$%&'*+-.^_`~9}",
		"s3://videos/{header.a!#$%&'*+-.^_`|~9}", "s3://videos/{query.Key_1~-.}", "s3://videos/{query.}",
		"s3://videos/{query.a%20}", "s3://{query.a}/{query.b}", "s3://videos/{path.a}", "s3://videos/{path.camera}",
		"s3://videos/{path.}", "s3://videos/{path.a-b}", "s3://{path.camera|urldecode}/{path.frame}",
		"s3://videos/{query.a|urldecode}", "s3://videos/{query.a|urldecode|trimprefix:a/b|urldecode|urldecode}",
		"s3://videos/{query.a|urldecode|urldecode|urldecode|urldecode|urldecode}", "s3://videos/{query.a|}",
		"s3://videos/{query.a|lower}", "s3://videos/{query.a|trimprefix:}", "s3://videos/{query.a|trimprefix:{}",
		"s3://videos/{query.a|trimprefix:\n}",
		"s3://{query.a|trimprefix:b/}/c", "s3://{query.a|trimprefix:b@}/c", "s3://{query.a|trimprefix:b}/c",
		"s3://videos/{header.host|urldecode}", "s3://videos/{header.hosts|urldecode}",
		"s3://videos/{header.x-headstart-a|urldecode}", "s3://videos/{query.a|trimprefix:../}/b",
		"s3://videos/{path.camera|trimprefix:path.b}", "s3://videos/{header.path.zz}", "/a s3://videos/a",
		"s3://videos/{header.a|urldecode }", "s3://videos/path.x/{path.camera}",
		"s3://{header.a}{header.b}/c", "s3://vid{header.a}/c", "s3://ab/a", "s3://abc/a", "s3://" + strings.Repeat("a", 63) + "/a", "s3://" + strings.Repeat("a", 64) + "/a", "s3://Videos/a", "s3://-videos/a", "s3://videos./a", "s3://vid..eos/a", "s3://vid_eos/a",
		"s3://10.0.0.1/a", "s3://1.2.3.4.5/a", "s3://999.999.999.999/a", "s3://10.0.0.a/a", "s3://xn--a/a", "s3://sthree-a/a", "s3://amzn-s3-demo-a/a", "s3://a-s3alias/a", "s3://a--ol-s3/a", "s3://a.mrap/a", "s3://a--x-s3/a", "s3://a--table-s3/a", "s3://s3alias/a", "s3://mrap/a",
		"s3://videos/" + strings.Repeat("k", 1024), "s3://videos/" + strings.Repeat("k", 1025), "s3://videos/" + strings.Repeat("ä", 512), "s3://videos/" + strings.Repeat("ä", 513), "s3://videos/" + strings.Repeat("k", 1023) + "{header.a}", "s3://videos/" + strings.Repeat("k", 1024) + "{header.a}",
		"s3://videos/" + strings.Repeat("{header.a}", 8), "s3://videos/" + strings.Repeat("{header.a}", 9), "s3://{header.a}/" + strings.Repeat("{header.a}", 7), "s3://{header.a}/" + strings.Repeat("{header.a}", 8),
		"s3://videos/{header." + strings.Repeat("a", 2028) + "}", "s3://videos/{header." + strings.Repeat("a", 2029) + "}", "s3://videos/x{header." + strings.Repeat("a", 2028) + "}", strings.Repeat("s3://", 500), "s3://videos/..{header.a}", "s3://videos/{header.a}/../b",
		"redis://jobs/a", "redis://jobs/{header.x-job}", "redis://{header.a}/b", "redis://other/a", "redis://jobs", "redis://jobs/", "redis:///a", "redis://a:b/c", "redis://Jobs_1.a-b/c", "redis://-a/b", "redis://a-/b", "redis://a{header.b}/c",
		"redis://" + strings.Repeat("a", 63) + "/b", "redis://" + strings.Repeat("a", 64) + "/b", "redis://jobs/../b", "redis://me@jobs/a", "rediss://jobs/a", "redis:/jobs/a", "redis://a..b/c", "redis://{header.host}/a",
		"http://www.example.com/a", "https://www.example.com/a?b=c#d%2e", "https://a/b", "http://a/b", "https://a:80/b", "http://a:80/{header.a}", "https://{header.a}/b", "https://other/a", "https://a", "https://a/", "https:///a", "https://A/b", "https://a..b/c", "https://a:0/b",
		"https://a:/b", "https://a:012/b", "https://a:123456/b", "https://a:65535/b", "https://a:65536/b",
		"https://a:99999/b", "https://a:6553/b", "https://[::1]/a", "https://a?b/c", "https://me:pw@a/b",
		"https://-a/b", "https://a./b", "https://a_b/c", "https://10.0.0.1/b", "https://a/../b", "https://a//b",
		"https://" + strings.Repeat("a", 253) + "/b", "https://" + strings.Repeat("a", 254) + "/b", "ftp://a/b", "https://{header.a}:80/b", "http://{header.a}{header.b}/c",
	}
	streams = []string{"redis://jobs/frames", "redis://jobs/a:b/c.d_e-f", "redis://jobs//a", "redis://jobs/A", "redis://other/a", "redis://jobs/", "redis://jobs", "redis:///a", "redis://-a/b", "redis://a-/b", "redis://a/-b", "redis://{header.a}/b", "redis://jobs/{header.a}",
		"redis://jobs/a b", "redis://jobs/ä", "redis://jobs/a\n", "redis://me:pw@jobs/a", "rediss://jobs/a", "s3://videos/a", "Redis://jobs/a", "", "redis://jobs/" + strings.Repeat("a", 256), "redis://jobs/" + strings.Repeat("a", 257), "redis://" + strings.Repeat("a", 63) + "/b", "redis://" + strings.Repeat("a", 64) + "/b"}
	paths = []string{"/videos/{camera}/{+frame}", "/videos/{camera}", "/", "", "videos", "/videos/", "//a", "/a/./b",
		"/a/../b", "/a/.../b", "/.a/b.", "/{a", "/{a}b", "/b{a}", "/{a}/{a}", "/{a}/{+a}", "/{+a}/b", "/{+a}", "/{++a}",
		"/{}", "/{+}", "/{a-b}", "/{A_1}", "/a b", "/a%20b", "/a?b", "/a\n", "/\u00e4", "/~a:@-_",
		"/" + strings.Repeat("a", 511), "/" + strings.Repeat("a", 512), "/{camera}/{frame} ", "/{a} s3://videos/a"}
	volumes = []string{
		"models=s3://models/llama/", "models=s3://models/", "a=s3://models/a/,b=s3://videos/b/c/", "a=s3://models/a/,a=s3://models/b/",
		"a=s3://models/a/, b=s3://models/b/", "", ",", "models", "models=", "=s3://models/", "s3://models/", "models=s3://models", "models=s3://models/llama",
		"models=s3://models//", "models=s3://models//a/", "models=s3://models/a//", "models=s3:///a/", "models=s3://models/../a/", "models=s3://models/./",
		"models=s3://models/.../", "models=s3://models/a b/", "models=s3://models/ /", "models=s3://models/ä/", "models=s3://models/a\n/", "models=s3://models/a=b/",
		"models=s3://models/{header.a}/", "models=s3://{header.a}/", "models=s3://models/a;b/", "models=s3://other/a/", "models=s3://videos/a/,b=s3://other/",
		"models=redis://jobs/", "models=https://a/b/", "a=s3://models/,b=http://a:80/c/", "Models=s3://models/", "-a=s3://models/", "a-=s3://models/", "a.b=s3://models/",
		"a=s3://10.0.0.1/", "a=s3://xn--a/", "a=s3://a..b/", "a=s3://ab/", "a=s3://Models/", "models=s3://me:pw@models/", "me@models", "a=s3://models/,", ",a=s3://models/",
		strings.Repeat("a", 63) + "=s3://models/", strings.Repeat("a", 64) + "=s3://models/", "a=s3://models/" + strings.Repeat("k", 1023) + "/",
		"a=s3://models/" + strings.Repeat("k", 1024) + "/", "a=s3://models/" + strings.Repeat("ä/", 341) + "/", "a=s3://models/" + strings.Repeat("ä/", 342),
		"a=s3://models/,b=s3://models/,c=s3://models/,d=s3://models/,e=s3://models/,f=s3://models/,g=s3://models/,h=s3://models/",
		"a=s3://models/,b=s3://models/,c=s3://models/,d=s3://models/,e=s3://models/,f=s3://models/,g=s3://models/,h=s3://models/,i=s3://models/",
		strings.Repeat("a", 4096), strings.Repeat("a", 4097),
	}
	connections = append([]string{"orders", "orders,sessions", "sessions,orders", "orders,orders", "orders,nowhere", "orders, sessions", "orders,", ",orders",
		"Orders", "a,b,c,d,e,f,g,orders", "a,b,c,d,e,f,g,h,orders", "orders,sessions,orders", "orders\n", "me:pw@orders", strings.Repeat("a", 63) + ",orders"}, names...)
	words      = []string{"balanced", "inverse", "even", "Even", "even ", "", "even,inverse", "even\n", "odd", "body", "s3", "on", "off", "active", "observe", "Observe"}
	counts     = []string{"1", "5", "100", "101", "0", "01", "-1", "+1", "1.0", "1e1", "", " 1", "1\n", "999999999", "9999999999", "99999999999999999999", "ten", "１"}
	namespaces = append([]string{"media,web", "media, web", ",", "a,", ",a", "a,,b", "a,a", "a,B", "*", strings.Repeat("a,", 31) + "a", strings.Repeat("a,", 32) + "a",
		strings.Repeat("a", 63) + "," + strings.Repeat("b", 63), "a," + strings.Repeat("b", 64), "a\n,b", "a,b\n", "a;b"}, names...)
	unknown = []string{
		"headstart.dev/inputs", "headstart.dev/input.", "headstart.dev/input.Mask", "headstart.dev/input.a.b",
		"headstart.dev/input.-", "headstart.dev/input." + strings.Repeat("a", 33), "headstart.dev/inputs.mask",
		"headstart.dev/imput.mask", "headstart.dev/input.<name>", "headstart.dev/INPUT.mask",
		"Headstart.dev/Input-Limit", "headstart.dev/password", "headstart.dev/", "headstart.dev/scale-to-zerro",
		"HEADSTART.DEV/input", "headstart.dev", "headstart.development/input", "serving.knative.dev/creator",
		"xheadstart.dev/input", "headstart.dev/sctore", "headstart.dev/volumes", "headstart.dev/volumes-wait", "headstart.dev/volume",
		"headstart.dev/connections", "headstart.dev/connections-by", "headstart.dev/connection", "headstart.dev/modes",
	}
)

// keyMask is a key of a named input.
const keyMask = "headstart.dev/input.mask"

// key is one that the annotation may have.
func key(a policy.Annotation) string { return strings.Replace(a.Key, "<name>", "mask", 1) }

// seeds are values by key. Each is tried alone, and with a good input.
func seeds() map[string][]string {
	return map[string][]string{
		policy.KeyInput: references, keyMask: references, policy.KeyPath: paths, policy.KeyStore: names,
		policy.KeyInputLimit:  quantities,
		policy.KeyScaleToZero: durations, policy.KeyReadyTimeout: durations, policy.KeyCallers: namespaces,
		policy.KeyTrigger: streams, policy.KeyTriggerStore: names, policy.KeyTriggerTries: counts, policy.KeyWorkflow: names, policy.KeyState: names,
		policy.KeyRouting: words, policy.KeyMode: words, policy.KeyReadBy: words, policy.KeyS3Learn: words, policy.KeySpeculation: words, policy.KeyVolumes: volumes, policy.KeyConnections: connections, policy.KeyConnectionsBy: words, policy.KeyVolumesWait: append(durations, "0s", "-1ns"),
	}
}
