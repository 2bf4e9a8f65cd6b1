// What differs between the releases. Everything else holds for all of them.

package suite

import "time"

// release is what a release does in its own way.
type release struct {
	// version is the patch release that the agent's module pins.
	version string
	// full is the error of an agent that has no address to give.
	full string
	// keepsHealth says that a restarted agent takes its earlier health address again.
	keepsHealth bool
	// routerInNativeRange says that an earlier router address is given up unless it lies in the native routing range.
	routerInNativeRange bool
	// strictCIDRs says that a CiliumNode with text in podCIDRs that is no canonical CIDR can't be read.
	strictCIDRs bool
	// fatalErrors says that an update of the CiliumNode which is refused, but not as a conflict, ends the agent at once.
	fatalErrors bool
	// multiPool says that the agent runs in mode multi-pool too.
	multiPool bool
	// static says that the agent runs in the modes cluster-pool and kubernetes too.
	static bool
	// pools is what mode multi-pool does in its own way.
	pools poolRelease
}

// poolRelease is what a release in mode multi-pool does in its own way.
type poolRelease struct {
	// interval is the time between two writes of spec.ipam.pools that the agent can't be talked out of; 0 where it obeys
	// the flag.
	interval time.Duration
	// needsCiliumPodIPPool says that nothing is allocated from a pool without such an object.
	needsCiliumPodIPPool bool
	// lateDemand says that demand which changes within the interval waits for the next tick, not for the interval's end.
	lateDemand bool
	// lateRetry says that an update which is refused as a conflict is tried again at the next tick, not within seconds.
	lateRetry bool
	// takesBack says that the agent may use a CIDR again that it has given back.
	takesBack bool
	// firstAndLast says that an entry can allow the first and the last address of its CIDRs.
	firstAndLast bool
}

// retryPause is the time between two attempts at an update of the CiliumNode that is refused as a conflict.
const retryPause = 500 * time.Millisecond

const (
	noMore = "No more IPs available"
	none   = "no IPs currently available on the node, allocation will be retried once IPs are added to CiliumNode spec.ipam.pool"
)

var releases = map[string]release{
	"1.14": {
		version: "v1.14.19", full: noMore,
		routerInNativeRange: true, fatalErrors: true,
	},
	"1.17": {
		version: "v1.17.8", full: noMore,
		keepsHealth: true, fatalErrors: true,
		static: true, multiPool: true, pools: poolRelease{interval: 15 * time.Second},
	},
	"1.20": {
		version: "v1.20.2", full: none,
		keepsHealth: true, strictCIDRs: true, static: true,
		multiPool: true, pools: poolRelease{
			needsCiliumPodIPPool: true, lateDemand: true, lateRetry: true, takesBack: true, firstAndLast: true,
		},
	},
}
