// What differs between the releases. Everything else holds for all of them.

package suite

// release is what a release does in its own way.
type release struct {
	// bgpVersion is the API version of the objects that configure BGP.
	bgpVersion string
}

var releases = map[string]release{
	"1.17": {bgpVersion: "v2alpha1"},
	"1.19": {bgpVersion: "v2"},
}
