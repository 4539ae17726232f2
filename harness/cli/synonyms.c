// SPDX-License-Identifier: GPL-3.0-or-later
#include "harness/cli/synonyms.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// clang-format off
/* Words of Hugging Face transformers, Megatron-LM, fairseq, nanoGPT, PyTorch and JAX, in lower case without dashes. */
static const struct {
    const char *of;
    const char *words; /* between blanks */
    const char *here;
} table[] = {
    {"option", "layers numlayers nlayers nlayer numhiddenlayers hiddenlayers encoderlayers decoderlayers blocks numblocks nblocks", "--depth"},
    {"option", "hiddensize hiddendim hidden dim dmodel modeldim modelsize nembd embeddim embeddingdim embdim dims channels", "--width"},
    {"option", "numheads nheads nhead numattentionheads attentionheads attnheads", "--heads"},
    {"option", "numkeyvalueheads numkvheads nkvheads numquerygroups keyvalueheads", "--kv-heads"},
    {"option", "dhead dkv kvchannels headsize", "--head-dim"},
    {"option", "activation act actfn hiddenact activationfn activationfunction nonlinearity mlp mlptype ffntype", "--ffn"},
    {"option", "mlpratio ffnratio ffnhiddensize intermediatesize dff ninner ffndim mlpdim", "--ffn-mult"},
    {"option", "numexperts nexperts numlocalexperts nroutedexperts", "--experts"},
    {"option", "numexpertspertok topk moetopk moeroutertopk", "--experts-active"},
    {"option", "normalization normtype normlayer", "--norm"},
    {"option", "epsilon normeps layernormeps rmsnormeps normepsilon layernormepsilon", "--eps"},
    {"option", "normposition normplacement normorder placement arrangement blocktype blocklayout", "--layout"},
    {"option", "positionembeddingtype positionembedding positionalembedding positionalencoding posemb posembed posenc positions", "--pos"},
    {"option", "ropetheta rotarybase ropebase", "--theta"},
    {"option", "slidingwindow windowsize attentionwindow", "--window"},
    {"option", "qklayernorm", "--qk-norm"},
    {"option", "tieembeddings tieweights tiewordembeddings weighttying shareembeddings", "--tie"},
    {"option", "usebias addbias biases", "--bias"},
    {"option", "logitsoftcap logitssoftcap finallogitsoftcap finallogitsoftcapping", "--softcap"},
    {"option", "attnlogitsoftcap attnlogitsoftcapping attnsoftcap", "--score-softcap"},
    {"option", "precision format datatype torchdtype mixedprecision", "--dtype"},
    {"option", "half float16 fp16", "--dtype fp16"},
    {"option", "bfloat16 bf16", "--dtype bf16"},
    {"option", "float32 fp32", "--dtype fp32"},
    {"option", "float64 double fp64", "--dtype fp64"},
    {"option", "weightinit initializer initmethod initialization", "--init"},
    {"option", "randomseed rngseed manualseed", "--seed"},
    {"option", "dataset datasetname datapath datadir corpus traindata", "--data"},
    {"option", "file text textfile input inputfile", "--data text:FILE"},
    {"option", "seqlen seqlength sequencelength maxlength maxlen maxseqlen contextlength contextsize context blocksize ctx nctx ctxlen maxpositionembeddings npositions", "--seq"},
    {"option", "batchsize bs bsz microbatchsize perdevicetrainbatchsize trainbatchsize globalbatchsize", "--batch"},
    {"option", "vocabsize vocabularysize", "--vocab"},
    {"option", "iters iterations niters maxiters maxsteps numsteps nsteps trainiters trainsteps totalsteps updates epochs numepochs", "--steps"},
    {"option", "learningrate baselr maxlr peaklr", "--lr"},
    {"option", "optim opt", "--optimizer"},
    {"option", "warmupsteps warmupiters numwarmupsteps warmupupdates lrwarmupiters lrwarmupsteps", "--warmup"},
    {"option", "scheduler lrscheduler lrschedule lrschedulertype lrdecaystyle", "--schedule"},
    {"option", "adambeta1", "--beta1"},
    {"option", "adambeta2", "--beta2"},
    {"option", "adamepsilon", "--adam-eps"},
    {"option", "wd", "--weight-decay"},
    {"option", "gradclip clipgrad clipnorm maxgradnorm gradclipnorm gradientclipval", "--clip"},
    {"option", "gradientaccumulation gradientaccumulationsteps gradaccumsteps accumsteps accumulategradbatches updatefreq", "--grad-accum"},
    {"option", "initialscale initscale initiallossscale", "--loss-scale"},
    {"option", "lossscalewindow growthinterval", "--scale-window"},
    {"option", "evalevery evalinterval evalsteps evalfreq valinterval valcheckinterval", "--val-every"},
    {"option", "saveevery saveinterval savesteps savefreq ckptevery checkpointinterval", "--checkpoint-every"},
    {"option", "logevery loginterval loggingsteps logfreq", "--probe-every"},
    {"option", "resumefromcheckpoint resumefrom continue", "--resume"},
    {"option", "output outputdir outdir savedir resultdir resultsdir dir folder", "--out"},
    {"option", "name tag runname experimentname expname note", "--label"},
    {"option", "numthreads nthreads cpus numworkers workers cores", "--threads"},
    {"option", "overwrite overwriteoutputdir", "--force"},
    {"option", "plan estimate", "--dry-run"},
    {"option", "metrics measure", "--probes"},
    {"option", "checkpoint pretrained modelnameorpath modelpath", "--model"},
    {"option", "architecture modeltype", "--arch"},
    {"option", "vary sweep grid jobs", "harness/sweep.sh --vary OPTION=A,B"},
    {"option", "seeds", "harness/sweep.sh --seeds 0..4"},

    {"command", "train fit", "harness run --steps N"},
    {"command", "start execute", "harness run"},
    {"command", "sweep grid search", "harness/sweep.sh"},
    {"command", "plot plots figure figures draw", "plots/plot"},
    {"command", "test tests", "./test.sh"},
    {"command", "ls show", "harness list"},
    {"command", "info explain", "harness describe"},
    {"command", "gradcheck", "harness check"},
    {"command", "diff", "harness compare"},
    {"command", "save convert", "harness export"},
    {"command", "summary headroom", "harness report"},
    {"command", "man", "harness manual"},
    {"command", "version", "harness --version"},

    {"layout", "prelayernorm gpt gpt2 gpt3 llama mistral qwen", "pre"},
    {"layout", "postlayernorm original vanilla bert transformer", "post"},
    {"layout", "gemma gemma2 gemma3 perinorm doublenorm", "sandwich"},
    {"layout", "none nonorm", "no-norm"},

    {"topic", "architectures archs arch", "models"},
    {"topic", "datasets", "data"},
    {"topic", "placements norms", "layouts"},
    {"topic", "metrics", "columns"},
    {"topic", "recipes scalers", "policies"},

    {"dtype", "fp16 half float16 f16 16 torch.float16 torch.half jnp.float16 np.float16 binary16", "fp16"},
    {"dtype", "bf16 bfloat16 bfloat b16 torch.bfloat16 jnp.bfloat16", "bf16"},
    {"dtype", "fp32 float32 float f32 single 32 full torch.float32 torch.float jnp.float32 np.float32 binary32", "fp32"},
    {"dtype", "fp64 float64 double f64 64 torch.float64 torch.double jnp.float64 np.float64 binary64", "fp64"},
    {"dtype", "tf32 tensorfloat32 tensorfloat", "tf32"},
    {"dtype", "fp8 float8 f8 8", "fp8-e4m3 or fp8-e5m2"},
    {"dtype", "e4m3fn fp8e4m3 fp8e4m3fn float8e4m3 float8e4m3fn torch.float8e4m3fn", "fp8-e4m3"},
    {"dtype", "fp8e5m2 float8e5m2 torch.float8e5m2", "fp8-e5m2"},
    {"switch", "true yes 1 y", "on"},
    {"switch", "false no 0 n none", "off"},
    {"norm", "rmsnorm", "rms"},
    {"norm", "layernorm ln", "layer"},
    {"ffn", "silu swish", "swiglu"},
    {"ffn", "mlp", "gelu"},
    {"pos", "rotary", "rope"},
    {"pos", "none off no", "nope"},
    {"pos", "absolute learnedabsolute", "learned"},
    {"optimizer", "adam torch.optim.adamw", "adamw"},
    {"optimizer", "momentum", "sgd"},
    {"schedule", "cos", "cosine"},
    {"schedule", "trapezoidal trapezoid warmupstabledecay", "wsd"},
    {"schedule", "none off const constantwithwarmup", "constant"},
    {"init", "lecun default", "unit"},
    {"init", "glorot", "xavier"},
    {"init", "megatron", "gpt2"},
    {"data source", "mnist fashion images", "fashion-mnist"},
    {"data source", "random", "uniform"},
};
// clang-format on

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_dash(char c)
{
    return c == '-' || c == '_';
}

/* True where the first n bytes of `known` are the word, its case and dashes left out. */
static bool matches(const char *known, size_t n, const char *word)
{
    size_t i = 0;
    for (; *word; word++)
        if (!is_dash(*word) && (i == n || known[i++] != lower(*word)))
            return false;
    return i == n;
}

const char *nh_synonym(const char *of, const char *word)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].of, of) != 0)
            continue;
        for (const char *known = table[i].words; *known; known += strspn(known, " ")) {
            const size_t n = strcspn(known, " ");
            if (matches(known, n, word))
                return table[i].here;
            known += n;
        }
    }
    return NULL;
}
