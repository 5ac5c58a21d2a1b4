package tailrace.compat.flink;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Adds to each record how many of its key came before it. The count is state, which checkpoints hold. */
final class CountOfKey extends KeyedProcessFunction<String, String, String> {
    private transient ValueState<Integer> count;

    @Override
    public void open(OpenContext context) {
        count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Integer.class));
    }

    @Override
    public void processElement(String value, Context context, Collector<String> out) throws Exception {
        Integer before = count.value();
        out.collect(value + " " + (before == null ? 0 : before));
        count.update(before == null ? 1 : before + 1);
    }
}
