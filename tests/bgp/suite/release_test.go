// What differs between the releases. Everything else holds for all of them.

package suite

// release is what a release does in its own way.
type release struct {
	// bgpVersion is the API version of the objects that configure BGP.
	bgpVersion string
	// failsApart says that a podCIDR that can't be parsed stops the announcing of podCIDRs and nothing else; otherwise it
	// stops whatever comes after that, sessions included.
	failsApart bool
}

var releases = map[string]release{
	"1.17": {bgpVersion: "v2alpha1"},
	"1.19": {bgpVersion: "v2", failsApart: true},
}
