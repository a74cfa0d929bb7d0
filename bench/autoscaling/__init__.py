"""The autoscaler in simulation, beside a lag threshold as KEDA's and CPU as a HorizontalPodAutoscaler's."""
