// STAND-IN for two device plugins, SR-IOV's and NVIDIA's: neither is run where this is used, and every report says so.
//
// Imitated: k8snetworkplumbingwg/sriov-network-device-plugin v3.11.0, its options as upstream's entrypoint takes them, its discovery by
// pciAddresses and isRdma (any other selector or field is refused here), what Allocate answers, and the file of device information that
// Multus reads; and of NVIDIA's k8s-device-plugin 0.18 and newer the number of shares. No CDI, no health, no plugins_registry: it
// registers itself at kubelet.sock. tests/nodes/test_6_plugin_beside.py runs it beside the real one.
//
// It reads the file that our DaemonSets give them (--config-file), and registers with the kubelet what it names: of an
// SR-IOV configuration one resource for each entry of resourceList, its devices being those of pciAddresses that the node
// has now (as the real one does, at its start only); of NVIDIA's one GPU that is not there, in as many shares as it says.
// Built inside the tree of Kubernetes, whose stub of a device plugin it uses.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

type config struct {
	ResourceList []struct {
		ResourceName, ResourcePrefix string
		Selectors                    []struct {
			PciAddresses []string
			IsRdma       bool
		}
	}
	Version string
	Flags   json.RawMessage
	Sharing struct {
		TimeSlicing struct {
			Resources []struct {
				Name     string
				Replicas int
			}
		}
	}
}

const devices = "/sys/bus/pci/devices/"

// rdma: the VFs that were asked for with isRdma.
var rdma = map[string]bool{}

// hca returns the name of a VF's RDMA device: below its PCI function, so never that of soft-RoCE.
func hca(pci string) string {
	found, _ := filepath.Glob(devices + pci + "/infiniband/*")
	if len(found) == 0 {
		return ""
	}
	return filepath.Base(found[0])
}

// verbs returns the files of a VF's RDMA device by their kinds.
func verbs(pci string) map[string]string {
	found := map[string]string{}
	classes := map[string]string{"issm": "infiniband_mad", "umad": "infiniband_mad", "uverbs": "infiniband_verbs"}
	for kind, class := range classes {
		places, _ := filepath.Glob("/sys/class/" + class + "/" + kind + "*")
		for _, place := range places {
			if name, _ := os.ReadFile(place + "/ibdev"); strings.TrimSpace(string(name)) == hca(pci) {
				found[kind] = "/dev/infiniband/" + filepath.Base(place)
			}
		}
	}
	if _, err := os.Stat("/dev/infiniband/rdma_cm"); err == nil {
		found["rdma_cm"] = "/dev/infiniband/rdma_cm"
	}
	return found
}

func plain(value interface{}) string {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}

func offered(c config) map[string][]string {
	found := map[string][]string{}
	for _, r := range c.ResourceList {
		for _, s := range r.Selectors {
			for _, pci := range s.PciAddresses {
				if _, err := os.Stat(devices + pci); err == nil && (!s.IsRdma || hca(pci) != "") {
					name := r.ResourcePrefix + "/" + r.ResourceName
					found[name] = append(found[name], pci)
					rdma[pci] = s.IsRdma
				} else {
					log.Printf("no devices in device pool, skipping creating resource server for %s", r.ResourceName)
				}
			}
		}
	}
	if c.ResourceList == nil {
		shares := 1
		for _, r := range c.Sharing.TimeSlicing.Resources {
			shares = r.Replicas
		}
		for i := 0; i < shares; i++ {
			found["nvidia.com/gpu"] = append(found["nvidia.com/gpu"], "GPU-stand-in-"+strconv.Itoa(i))
		}
	}
	return found
}

func allocate(resource string) func(*pluginapi.AllocateRequest, map[string]pluginapi.Device) (*pluginapi.AllocateResponse, error) {
	key := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(resource))
	return func(asked *pluginapi.AllocateRequest, known map[string]pluginapi.Device) (*pluginapi.AllocateResponse, error) {
		answer := &pluginapi.AllocateResponse{}
		for _, one := range asked.ContainerRequests {
			told := &pluginapi.ContainerAllocateResponse{}
			given, about := []string{}, map[string]map[string]map[string]string{}
			for _, id := range one.DevicesIDs {
				if _, ok := known[id]; !ok {
					return nil, errors.New("storeDeviceInfoFile: Only pciNetDevices are supported")
				}
				given = append(given, id)
				about[id] = map[string]map[string]string{"generic": {"deviceID": id}}
				if rdma[id] {
					files := verbs(id)
					for _, file := range files {
						told.Devices = append(told.Devices, &pluginapi.DeviceSpec{HostPath: file, ContainerPath: file, Permissions: "rw"})
					}
					files["rdma_dev"] = hca(id)
					about[id]["rdma"] = files
				}
				inform(resource, id)
			}
			told.Envs = map[string]string{key: strings.Join(given, ","), key + "_INFO": plain(about)}
			answer.ContainerResponses = append(answer.ContainerResponses, told)
		}
		return answer, nil
	}
}

// inform writes the file by which Multus tells of the device in the pod's network status.
func inform(resource, id string) {
	pci := map[string]string{"pci-address": id}
	if name := hca(id); rdma[id] && name != "" {
		pci["rdma-device"] = name
	}
	told := map[string]interface{}{"type": "pci", "version": "1.1.0", "pci": pci}
	name := strings.ReplaceAll(resource, "/", "-") + "-" + id + "-device.json"
	if err := os.WriteFile("/var/run/k8s.cni.cncf.io/devinfo/dp/"+name, []byte(plain(told)), 0o444); err != nil {
		log.Print(err)
	}
}

// serve offers a resource forever; it registers again whenever the kubelet has emptied its folder.
func serve(resource string, ids []string) {
	var devices []*pluginapi.Device
	for _, id := range ids {
		devices = append(devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	socket := filepath.Join(pluginapi.DevicePluginPath, "stand-in-"+strings.ReplaceAll(resource, "/", "_")+".sock")
	for {
		stub := devicemanager.NewDevicePluginStub(devices, socket, resource, false, false)
		stub.SetAllocFunc(allocate(resource))
		err := stub.Start()
		if err == nil {
			err = stub.Register(pluginapi.KubeletSocket, resource, "")
		}
		if err == nil {
			log.Printf("registered %s: %s", resource, strings.Join(ids, ", "))
			for err == nil {
				time.Sleep(time.Second)
				_, err = os.Stat(socket)
			}
		}
		log.Print(err)
		stub.Stop()
		time.Sleep(time.Second)
	}
}

func main() {
	var c config
	for _, argument := range os.Args[1:] {
		word := strings.SplitN(argument, "=", 2)
		if word[0] == "--config-file" && len(word) == 2 {
			text, err := os.ReadFile(word[1])
			if err != nil {
				log.Fatal(err)
			}
			strict := json.NewDecoder(bytes.NewReader(text))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&c); err != nil {
				log.Fatal(err)
			}
		} else if word[0] != "--resource-prefix" && word[0] != "--log-level" {
			log.Fatalf("ERROR: unknown parameter %q", word[0])
		}
	}
	found := offered(c)
	if len(found) == 0 {
		log.Print("no resource has a device")
	}
	for resource, ids := range found {
		go serve(resource, ids)
	}
	select {}
}
