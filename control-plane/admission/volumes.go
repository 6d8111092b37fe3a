package admission

import (
	"fmt"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// prefixes checks a list of volumes by the rules of reference.ParseVolumes.
func prefixes(text string, a policy.Annotation) []rule {
	no := func(wrong, why string) rule { return rule{wrong, why, "write it like " + a.Example} }
	volumes := text + ".split(',')"
	names := volumes + ".map(v, v.split('=')[0])"
	return []rule{
		no(fmt.Sprintf("%[1]s.size() > %[2]d || bytes(%[1]s).size() > %[2]d", text, reference.MaxVolumesBytes),
			reference.VolumesLong),
		no(fmt.Sprintf("%s.size() > %d", volumes, reference.MaxVolumes), reference.VolumesMany),
		no(text+".matches("+raw(reference.VolumesOtherPattern())+")", reference.VolumesOther),
		no("!"+volumes+".all(v, v.matches("+raw("^"+reference.VolumePattern()+"$")+"))", reference.VolumesForm),
		no(volumes+".exists(v, v.split('/')[2].matches("+raw("^("+reference.S3Buckets.Refused()+")$")+"))",
			reference.VolumesBucket),
		no(volumes+".exists(v, v.split('/').exists(s, s == '.' || s == '..'))", reference.VolumesDots),
		no(fmt.Sprintf("%s.exists(v, bytes(v.substring(v.split('/')[0].size() + v.split('/')[2].size() + 3)).size() > %d)",
			volumes, reference.MaxKeyBytes), fmt.Sprintf("has a prefix that is longer than %d bytes", reference.MaxKeyBytes)),
		no("!"+names+".all(n, "+names+".filter(m, m == n).size() == 1)", reference.VolumesTwice),
	}
}

// volumesGranted holds good volumes against the operator's stores, as policy.Parse does with those that are
// granted to the namespace. It follows granted.
var volumesGranted = []variable{
	{"volumesMatter", quote(policy.KeyVolumes) + " in variables.annotations && variables.volumesWrong == '' &&\n" +
		"  (!variables.storeGiven || variables.storeWrong == '')"},
	{"volumesGrantProblem", "!variables.volumesMatter ? ''\n" +
		": variables.chosen.size() == 0\n" +
		"  ? (variables.storeMatters ? '' : " + noStore + ")\n" +
		": !('" + reference.S3 + "' in variables.chosen[0].schemes)\n" +
		"  ? " + quote(policy.KeyVolumes+": ") + " + " + shown("variables.volumes") +
		" + 'cannot be read from store ' + variables.storeName + " +
		quote(", which has no lists of objects; name a store of the kind s3 in "+policy.KeyStore) + "\n" +
		": variables.volumes.split(',').all(v, v.split('/')[2] in variables.chosen[0].buckets) ? ''\n" +
		": " + quote(policy.KeyVolumes+": ") + " + " + shown("variables.volumes") +
		" + 'reads a bucket that store ' + variables.storeName + ' does not allow; use ' + 'one of ' + " +
		firstNames("variables.chosen[0].buckets") + " + ', or ask the operator to allow it'"},
}
