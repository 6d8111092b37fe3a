package admission

import (
	"fmt"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// The parts of an input reference, as filterapi.ParseTemplate takes them.
const (
	// headerName is a field name (RFC 9110, section 5.6.2) in lower case.
	headerName  = "[a-z0-9!#$%&'*+.^_`|~-]+"
	placeholder = `\{header\.` + headerName + `\}`
	// refusedHeader begins placeholders of headers that may not name an input.
	refusedHeader = `\{header\.((host|authorization|proxy-authorization|cookie)\}|x-headstart-)`
	bucketName    = `[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]`
	keyspaceName  = `[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?`
	hostName      = `[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[1-9][0-9]{0,4})?`
	// reservedBucket begins references to buckets that S3 reserves, or that look like an
	// address.
	reservedBucket = `^s3://((xn--|sthree-|amzn-s3-demo-)|[^/]*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)/|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+/|[^/{]*\.\.)`
	// oddHost begins references to hosts that are none.
	oddHost = `^https?://[^/{]*\.\.`
)

// forms are the schemes of references, with what stands between one and its key.
var forms = []struct{ scheme, place, pattern string }{
	{"s3", "bucket", bucketName}, {"redis", "keyspace", keyspaceName}, {"http", "host", hostName}, {"https", "host", hostName},
}

// schemes matches those of forms.
func schemes() string {
	all := make([]string, len(forms))
	for i, f := range forms {
		all[i] = f.scheme
	}
	return "(" + strings.Join(all, "|") + ")://"
}

// formed matches references that are made of the right parts.
func formed() string {
	all := make([]string, len(forms))
	for i, f := range forms {
		all[i] = f.scheme + "://(" + f.pattern + "|" + placeholder + ")"
	}
	return "^(" + strings.Join(all, "|") + ")/([^{}]|" + placeholder + ")+$"
}

// placeName is the CEL of what stands before the key of a reference.
func placeName(text string) string {
	var b strings.Builder
	for _, f := range forms {
		fmt.Fprintf(&b, "%s.startsWith('%s://') ? '%s' : ", text, f.scheme, f.place)
	}
	return "(" + b.String() + "'')"
}

// reference checks an input reference by the rules of filterapi.ParseTemplate.
func reference(name string, a policy.Annotation) ([]variable, []rule) {
	text, key := "variables."+name, "variables."+name+"Key"
	fix := a.Like()
	no := func(wrong, why string) rule { return rule{wrong, "is no input reference: " + why, fix} }
	// Each placeholder stands for a harmless value: what is wrong then, is wrong with any.
	expanded := fmt.Sprintf("%s.split('{').map(p, p.contains('}') ? 'x' + p.substring(p.indexOf('}') + 1) : p).join('').split('/')", text)
	vs := []variable{
		{name + "Long", fmt.Sprintf("%[1]s.size() > %[2]d || bytes(%[1]s).size() > %[2]d", text, filterapi.MaxTemplateBytes)},
		{name + "Formed", fmt.Sprintf("!variables.%sLong && %s.matches(%s)", name, text, raw(formed()))},
		// The path's segments, after "s3:", "" and the bucket; as of the other forms.
		{name + "Segments", fmt.Sprintf("variables.%sFormed ? %s : ['s3:', '', 'x', 'x']", name, expanded)},
		{name + "Key", fmt.Sprintf("variables.%[1]sSegments.join('/').substring(variables.%[1]sSegments[0].size() + variables.%[1]sSegments[2].size() + 3)", name)},
	}
	rules := []rule{
		{"!variables." + name + "Long && " + text + ".matches(" + raw("^("+schemes()+")?[^/]*@") + ")", "holds a user or password", "remove it; the operator's store has the credentials"},
		no("variables."+name+"Long", fmt.Sprintf("is longer than %d bytes", filterapi.MaxTemplateBytes)),
		no(not(text, "^"+schemes()), "must start with s3://, redis://, http:// or https://: no other store is supported"),
	}
	for _, f := range forms {
		no := no(text+".startsWith('"+f.scheme+"://') && "+not(text, "^"+f.scheme+"://[^/]*/"), fmt.Sprintf("has no key: write %s://<%s>/<key>", f.scheme, f.place))
		rules = append(rules, no)
	}
	if a.Literal {
		rules = append(rules, rule{text + ".contains('{')", policy.NotLiteral, fix})
	}
	return vs, append(rules, []rule{
		no("!variables."+name+"Formed", "has a bucket, keyspace, host or placeholder that is none, or no key: before the key stands a name or one {header.<name>}, a bucket has 3 to 63 of a-z, 0-9, dots and hyphens, and header names are in lower case"),
		no(text+".matches(r'"+refusedHeader+"')", "names a header that may not name an input: host, one with credentials, or one of the gateway's own"),
		no(text+".matches(r'"+reservedBucket+"')", "has a bucket whose name S3 reserves, that looks like an IP address, or that has two dots in a row"),
		no(text+".matches(r'"+oddHost+"')", "has a host with two dots in a row"),
		no(fmt.Sprintf("bytes(%s).size() > %d", key, filterapi.MaxKeyBytes), fmt.Sprintf("key is longer than %d bytes", filterapi.MaxKeyBytes)),
		no(key+`.matches(r'\p{Cc}')`, "key has control characters"),
		no(key+".startsWith('/')", "key begins with a slash"),
		no(key+".endsWith(' ')", "key ends with a space"),
		no(fmt.Sprintf("variables.%sSegments.exists(s, s == '.')", name), `key has the path segment "."`),
		no(fmt.Sprintf("variables.%sSegments.exists(s, s == '..')", name), `key has the path segment ".."`),
		no(fmt.Sprintf("%s.split('{').size() > %d", text, filterapi.MaxPlaceholders+1), fmt.Sprintf("has more than %d placeholders", filterapi.MaxPlaceholders)),
	}...)
}

// granted holds a good input against the operator's stores, as policy.Parse does with
// those that are granted to the namespace.
var granted = []variable{
	{"granted", "variables.stores.filter(s, s.namespaces.size() == 0 || request.namespace in s.namespaces)"},
	{"storeGiven", quote(policy.KeyStore) + " in variables.annotations"},
	{"storeName", "variables.storeGiven ? variables.store : " + quote(policy.DefaultStore)},
	{"chosen", "variables.granted.filter(s, s.name[0] == variables.storeName)"},
	{"storeMatters", quote(policy.KeyInput) + " in variables.annotations && variables.input != " + quote(policy.InputBody) + " && variables.inputWrong == '' && (!variables.storeGiven || variables.storeWrong == '')"},
	{"inputScheme", "variables.inputFormed ? variables.input.split('://')[0] : ''"},
	{"inputPlace", "variables.inputFormed ? variables.input.split('/')[2] : ''"},
	// A bucket, keyspace or host that a header names is checked by the node, for each request.
	{"grantProblem", "!variables.storeMatters ? ''\n" +
		": variables.chosen.size() == 0\n" +
		"  ? " + quote(policy.KeyStore+": ") + " + strings.quote(variables.storeName) + ' is not among the operator\\'s stores; ' +\n" +
		"    (variables.granted.size() == 0 ? 'ask the operator to allow it' : 'use one of ' + " + firstNames("variables.granted.map(s, s.name[0])") + ")\n" +
		": !(variables.inputScheme in variables.chosen[0].schemes)\n" +
		"  ? " + quote(policy.KeyInput+": ") + " + " + shown("variables.input") + " + 'does not begin as references to store ' + variables.storeName + ' do; begin it with ' + " +
		"variables.chosen[0].schemes.map(s, s + '://').join(' or ') + ', or name another store in " + policy.KeyStore + "'\n" +
		": variables.inputPlace.contains('{') || variables.inputPlace in variables.chosen[0].buckets ? ''\n" +
		": " + quote(policy.KeyInput+": ") + " + " + shown("variables.input") + " + 'reads a ' + " + placeName("variables.input") + " + ' that store ' + variables.storeName + ' does not allow; use one of ' + " +
		firstNames("variables.chosen[0].buckets") + " + ', or ask the operator to allow it'"},
}

// firstNames is the CEL of a list's first names, as many as fit a line.
func firstNames(names string) string {
	const most = 8
	return fmt.Sprintf("(%[1]s.size() <= %[2]d ? %[1]s.join(', ') : [0, 1, 2, 3, 4, 5, 6, 7].map(i, %[1]s[i]).join(', ') + ' and ' + string(%[1]s.size() - %[2]d) + ' more')", names, most)
}
