// What a Node carries in mode kubernetes.

package oracle

import "slices"

// podCIDRAnnotations are the annotations that agents take a family from which is not among the podCIDRs: under the name of
// 1.13 and newer releases, and under that of 1.12.
var podCIDRAnnotations = [][]string{
	{"network.cilium.io/ipv4-pod-cidr", "io.cilium.network.ipv4-pod-cidr"},
	{"network.cilium.io/ipv6-pod-cidr", "io.cilium.network.ipv6-pod-cidr"},
}

// PodCIDRs are the CIDRs that an agent may take from a Node: its podCIDRs, and of a family that is not among them what
// annotations say, under whichever name. In a cluster whose agents read no annotations nobody writes them.
func PodCIDRs(spec []string, annotations map[string]string) []string {
	cidrs := slices.Clone(spec)
	for i, keys := range podCIDRAnnotations {
		if slices.ContainsFunc(spec, func(text string) bool { return isIPv6(text) == (i == 1) }) {
			continue
		}
		for _, key := range keys {
			if text := annotations[key]; text != "" && !slices.Contains(cidrs, text) {
				cidrs = append(cidrs, text)
			}
		}
	}
	return cidrs
}

func isIPv6(text string) bool {
	cidr, err := parseCIDR(text)
	return err == nil && cidr.Addr().Is6()
}
