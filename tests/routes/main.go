// Command frr-k8s-webhook judges FRRConfigurations as the webhook of frr-k8s does: it converts all that select a node into
// one configuration of FRR, for each node.
//
// With two files it reads a list of FRRConfigurations and a list of Nodes as JSON from them, and exits with 1 and the reason
// if the webhook would refuse one. With `serve KUBECONFIG NAMESPACE` it is the webhook of an API server. It lies in frr-k8s's
// own module path, because the conversion is internal to that.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metallb/frr-k8s/api/v1beta1"
	"github.com/metallb/frr-k8s/internal/controller"
)

func main() {
	act := func() error { return judge(os.Args[1], os.Args[2]) }
	if os.Args[1] == "serve" {
		act = func() error { return serve(os.Args[2], os.Args[3]) }
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(configurationsFile, nodesFile string) error {
	var configurations v1beta1.FRRConfigurationList
	var nodes corev1.NodeList
	if err := read(configurationsFile, &configurations); err != nil {
		return err
	}
	if err := read(nodesFile, &nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		var selecting v1beta1.FRRConfigurationList
		for _, configuration := range configurations.Items {
			selector, err := metav1.LabelSelectorAsSelector(&configuration.Spec.NodeSelector)
			if err != nil {
				return fmt.Errorf("%s: %w", configuration.Name, err)
			}
			if selector.Matches(labels.Set(node.Labels)) {
				selecting.Items = append(selecting.Items, configuration)
			}
		}
		if err := controller.Validate(&selecting); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		fmt.Printf("node %s: %d FRRConfigurations\n", node.Name, len(selecting.Items))
	}
	return nil
}

func read(file string, into any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}
